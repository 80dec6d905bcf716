/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- unpacking of codes and products with packed rows, once per
 * instruction set.
 *
 * Products take 16 lanes of some codes each (quant_dot.h) and shift: where a
 * lane is a word, codes need no shuffle, and a table of 16 numbers turns the
 * low four bits of a lane into a number without mask or conversion.  Unpacking
 * goes 16 codes at a time: each lane gets the two bytes that hold its code, is
 * shifted and masked.  ../quant.h has the order of the sums.
 */
#include "kernels/quant.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/quant_walk.h"

typedef float F4 __attribute__((vector_size(16)));

INLINE U
u_load(const void *p)
{
    U x;

    memcpy(&x, p, sizeof x);
    return x;
}

/* Small integers. */
INLINE R
u_to_float(U x)
{
    return __builtin_convertvector((M)x, R);
}

/* By the low four bits. */
static const float elements[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                   4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                   -2.0F, -3.0F, -4.0F, -6.0F};
#if MR_TIER_ID == MR_TIER_AVX512
static const float integers[3][16] = {
    {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1},
    {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
#endif

/* Of what the low bits of each lane say; higher ones are ignored. */
INLINE R
number_integer(U c, const int bits)
{
#if MR_TIER_ID == MR_TIER_AVX512
    if (bits == 1 || bits == 2 || bits == 4)
        return v_pick(integers[bits / 2], c);
#endif
    return u_to_float(c & u_set((1U << bits) - 1));
}

/* Of a code in the bits from 20 on whose sign fills those above; NaN is taken
 * for 480. */
INLINE R
number_e4m3_top(U c)
{
    return (R)(c & 0x87F00000) * C(0x1p120F);
}

INLINE R
number_e4m3(U c)
{
    M nan = (M)((c & 0x7f) == 0x7f);
    R x = number_e4m3_top((U)((M)(c << 24) >> 4));

    return v_select(nan, v_from_bits(u_set(0x7fc00000)), x);
}

INLINE R
number(U c, const mr_quant_kind kind)
{
    switch (kind) {
    case MR_QUANT_1:
        return number_integer(c, 1);
    case MR_QUANT_2:
        return number_integer(c, 2);
    case MR_QUANT_3:
        return number_integer(c, 3);
    case MR_QUANT_4:
        return number_integer(c, 4);
    case MR_QUANT_5:
        return number_integer(c, 5);
    case MR_QUANT_6:
        return number_integer(c, 6);
    case MR_QUANT_8:
        return number_integer(c, 8);
    case MR_QUANT_E2M1:
        return v_pick(elements, c);
    case MR_QUANT_E4M3:
    case MR_N_QUANT_KINDS:
        break;
    }
    return number_e4m3(c);
}

INLINE int
kind_bits(const mr_quant_kind kind)
{
    switch (kind) {
    case MR_QUANT_1:
        return 1;
    case MR_QUANT_2:
        return 2;
    case MR_QUANT_3:
        return 3;
    case MR_QUANT_4:
    case MR_QUANT_E2M1:
        return 4;
    case MR_QUANT_5:
        return 5;
    case MR_QUANT_6:
        return 6;
    case MR_QUANT_8:
    case MR_QUANT_E4M3:
    case MR_N_QUANT_KINDS:
        break;
    }
    return 8;
}

/* ---- codes in a row ---------------------------------------------------------
 */

/* Room that codes_at may read behind the last code of a run. */
#define BEHIND 16

#if MR_TIER_ID != MR_TIER_BASELINE
/* For each lane the byte its code starts in, and the next. */
#define PICK(i, b) ((i) * (b) / 8), ((i) * (b) / 8 + 1), -128, -128
#define PICKS(b)                                                               \
    {                                                                          \
        PICK(0, b), PICK(1, b), PICK(2, b), PICK(3, b), PICK(4, b),            \
            PICK(5, b), PICK(6, b), PICK(7, b), PICK(8, b), PICK(9, b),        \
            PICK(10, b), PICK(11, b), PICK(12, b), PICK(13, b), PICK(14, b),   \
            PICK(15, b)                                                        \
    }
static const int8_t picks[7][64] = {{0},      PICKS(1), PICKS(2), PICKS(3),
                                    PICKS(4), PICKS(5), PICKS(6)};
#define SHIFT(i, b) ((i) * (b) % 8)
#define SHIFTS(b)                                                              \
    {                                                                          \
        SHIFT(0, b), SHIFT(1, b), SHIFT(2, b), SHIFT(3, b), SHIFT(4, b),       \
            SHIFT(5, b), SHIFT(6, b), SHIFT(7, b), SHIFT(8, b), SHIFT(9, b),   \
            SHIFT(10, b), SHIFT(11, b), SHIFT(12, b), SHIFT(13, b),            \
            SHIFT(14, b), SHIFT(15, b)                                         \
    }
static const uint32_t shifts[7][16] = {
    {0}, SHIFTS(1), SHIFTS(2), SHIFTS(3), SHIFTS(4), SHIFTS(5), SHIFTS(6)};
#endif

/* The N_LANES codes that start at a byte, one a lane, with other bits above;
 * reads up to BEHIND bytes. */
INLINE U
codes_at(const uint8_t *from, const int bits)
{
#if MR_TIER_ID == MR_TIER_AVX512
    if (bits == 8)
        return (U)_mm512_cvtepu8_epi32(
            _mm_loadu_si128((const __m128i *)(const void *)from));
    {
        __m512i x = _mm512_broadcast_i32x4(
            _mm_loadu_si128((const __m128i *)(const void *)from));

        x = _mm512_shuffle_epi8(x, _mm512_loadu_si512(picks[bits]));
        return (U)_mm512_srlv_epi32(x, _mm512_loadu_si512(shifts[bits]));
    }
#elif MR_TIER_ID == MR_TIER_AVX2
    if (bits == 8)
        return (U)_mm256_cvtepu8_epi32(
            _mm_loadl_epi64((const __m128i *)(const void *)from));
    {
        __m256i x = _mm256_broadcastsi128_si256(
            _mm_loadl_epi64((const __m128i *)(const void *)from));
        const __m256i *pick = (const __m256i *)(const void *)picks[bits];
        const __m256i *shift = (const __m256i *)(const void *)shifts[bits];

        x = _mm256_shuffle_epi8(x, _mm256_loadu_si256(pick));
        return (U)_mm256_srlv_epi32(x, _mm256_loadu_si256(shift));
    }
#elif MR_TIER_ID == MR_TIER_NEON
    if (bits == 8) {
        uint32_t word;

        memcpy(&word, from, sizeof word);
        return (U)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8((uint64_t)word))));
    }
    {
        uint8x16_t x = vcombine_u8(vld1_u8(from), vdup_n_u8(0));
        M shift;

        x = vqtbl1q_u8(x, vld1q_u8((const uint8_t *)picks[bits]));
        memcpy(&shift, shifts[bits], sizeof shift);
        return (U)vshlq_u32((uint32x4_t)x, (int32x4_t)-shift);
    }
#else
    {
        uint64_t word = 0; /* 4 codes of 8 bits and more of others */
        U c = {0};

        /* whole bytes are read up to the last one, others from a copy there */
        memcpy(&word, from, bits == 8 ? 4 : sizeof word);
        for (int i = 0; i < N_LANES; i++)
            c[i] = (uint32_t)(word >> i * bits);
        return c;
    }
#endif
}

/* Whole bytes: 8 codes are `bits` of them, which a vector of 4 lanes does not
 * fill.  So codes are taken by eights there. */
#if N_LANES == 4
#define STEP 8
#else
#define STEP N_LANES
#endif

INLINE void
step_numbers(const uint8_t *from, float *to, const mr_quant_kind kind)
{
    const int bits = kind_bits(kind);

#if N_LANES == 4
    uint8_t rest[BEHIND] = {0};
    uint64_t word;

    if (bits == 8) {
        v_store(to, number(codes_at(from, 8), kind));
        v_store(to + 4, number(codes_at(from + 4, 8), kind));
        return;
    }
    memcpy(&word, from, sizeof word);
    word >>= 4 * bits;
    memcpy(rest, &word, sizeof word);
    v_store(to, number(codes_at(from, bits), kind));
    v_store(to + 4, number(codes_at(rest, bits), kind));
#else
    v_store(to, number(codes_at(from, bits), kind));
#endif
}

INLINE void
unpack(const uint8_t *from, int64_t n, int64_t behind, float *to,
       const mr_quant_kind kind)
{
    const int bits = kind_bits(kind);
    uint8_t last[4 * BEHIND] = {0};
    float numbers[16];
    int64_t safe = n + behind * 8 / bits - (8 * BEHIND + bits - 1) / bits;
    int64_t i = 0;

    for (; i <= safe && i + STEP <= n; i += STEP, from += STEP * bits / 8)
        step_numbers(from, to + i, kind);
    while (i < n) { /* from a copy, which may be read behind its end */
        int64_t count = n - i < STEP ? n - i : STEP;

        memset(last, 0, sizeof last);
        memcpy(last, from, (size_t)(count * bits / 8));
        step_numbers(last, numbers, kind);
        memcpy(to + i, numbers, (size_t)count * sizeof *to);
        i += count;
        from += count * bits / 8;
    }
}

/* ---- rows side by side
 * --------------------------------------------------------
 */

/* Code j of each lane of a run of words; what it shares with the next word is
 * put together. */
INLINE U
lane_code(const uint32_t *words, const int j, const int bits)
{
    const int at = j * bits / 32, low = j * bits % 32;
    U w = u_load(words + at * N_LANES) >> (unsigned)low;

    if (low + bits > 32)
        w |= u_load(words + (at + 1) * N_LANES) << (unsigned)(32 - low);
    return w;
}

/* Some codes of each lane.  Where the next numbers go is hidden from the
 * compiler, which else works out all places beforehand. */
INLINE void
turned_some(const uint32_t *words, const int n, R s, R b, float *to,
            int64_t step, const mr_quant_kind kind)
{
    const int bits = kind_bits(kind);

#pragma GCC unroll 32
    for (int j = 0; j < n; j++, to += step) {
        R x = number(lane_code(words, j, bits), kind);

        __asm__("" : "+r"(to));
        v_store(to, x * s + b); /* rounded twice, as values are */
    }
}

INLINE void
turned(const uint32_t *words, int64_t n, const float *scale, const float *bias,
       float *to, int64_t step, const mr_quant_kind kind)
{
    const int bits = kind_bits(kind);
    R s = v_load(scale), b = v_load(bias);

    for (; n >= 32; n -= 32, words += bits * N_LANES, to += 32 * step)
        turned_some(words, 32, s, b, to, step, kind);
    if (n >= 16 && bits % 2 == 0)
        turned_some(words, 16, s, b, to, step, kind);
}

/* ---- products
 * ----------------------------------------------------------------
 */

/* Are there dots of codes as bits of floats? */
#if MR_TIER_ID == MR_TIER_AVX512 || MR_TIER_ID == MR_TIER_AVX2
#define HAS_BITS 1
#else
#define HAS_BITS 0
#endif

/* Bytes that are brought near, at least. */
#define AHEAD 4096

/* Gathers whether the seven low bits of a byte are set: the largest of each, or
 * in its top bit. */
INLINE U
e4m3_nans(U nans, U w)
{
    w &= 0x7F7F7F7F;
#if MR_TIER_ID == MR_TIER_AVX512
    return (U)_mm512_max_epu8((__m512i)nans, (__m512i)w);
#elif MR_TIER_ID == MR_TIER_AVX2
    return (U)_mm256_max_epu8((__m256i)nans, (__m256i)w);
#else
    return nans | (w + 0x01010101);
#endif
}

INLINE bool
e4m3_has_nan(U nans)
{
#if HAS_BITS
    nans += 0x01010101;
#endif
    return m_any((M)(nans & 0x80808080) != 0);
}

/* Lane by lane from[i]; where all are below N_LANES, and 16 may be read. */
INLINE R
pick_scales(const float *from, U i)
{
#if MR_TIER_ID == MR_TIER_AVX2
    return (R)_mm256_permutevar8x32_ps((__m256)v_load(from), (__m256i)i);
#else
    return v_pick(from, i);
#endif
}

/* Codes of a lane. */
INLINE int
kind_count(const mr_quant_kind kind)
{
    const int bits = kind_bits(kind);

    return bits == 3 ? 8 : bits == 5 || bits == 6 ? 4 : 32 / bits;
}

/* Bits of a lane's codes: 32, 24 or 20. */
INLINE int
lane_bits(const mr_quant_kind kind)
{
    return kind_count(kind) * kind_bits(kind);
}

/* Rows of w at a time, and how many sums they have with the rows of x;
 * vectors of a row at a time. */
#if MR_TIER_ID == MR_TIER_AVX512
enum { MOST_ROWS = 4, MOST_SUMS = 8, CELLS = 2 };
#elif MR_TIER_ID == MR_TIER_AVX2
enum { MOST_ROWS = 4, MOST_SUMS = 8, CELLS = VECTORS };
#else
enum { MOST_ROWS = 2, MOST_SUMS = 4, CELLS = VECTORS };
#endif

/* E4M3 without NaN. */
#define CLEAN MR_N_QUANT_KINDS

/* What x is arranged for: codes as they are; codes that stay in their place of
 * the lane; such whose bits are taken for those of a float. */
typedef enum form { PLAIN, PLACED, BITS } form;

#if HAS_BITS
/* The code where it is, times the power of two that x was divided by. */
INLINE U
code_in_place(U w, const int at, const int bits)
{
    uint64_t mask = ((1U << bits) - 1) << at;

    /* every second lane of 20 bits begins in the midst of a byte */
    mask |= mask << (bits == 5 ? 36 : 32);
#if MR_TIER_ID == MR_TIER_AVX512
    return w & (U)_mm512_set1_epi64((long long)mask);
#else
    return w & (U)_mm256_set1_epi64x((long long)mask);
#endif
}

/* The 24 low bits of a float are 2^149 times the number, as are the upper ones
 * once they are the lowest. */
INLINE R
number_of_bits(U w, const int at, const int bits)
{
    if (at < 24)
        return (R)code_in_place(w, at, bits);
    return (R)(bits == 8 ? w >> 24 : code_in_place(w >> 24, at - 24, bits));
}
#endif

#if HAS_BITS
#if MR_TIER_ID == MR_TIER_AVX512
/* Elements times 2^-126: of those bits that a float of that size has. */
static const uint32_t element_bits[16] = {
    0,          0x00400000, 0x00800000, 0x00C00000, 0x01000000, 0x01400000,
    0x01800000, 0x01C00000, 0x80000000, 0x80400000, 0x80800000, 0x80C00000,
    0x81000000, 0x81400000, 0x81800000, 0x81C00000};
#endif

/* The topmost code needs no table: its sign and its three other bits are moved
 * to where a float has them. */
INLINE R
element_of_bits(U w, const int at)
{
    if (at == 28)
        return (R)((U)((M)w >> 6) & 0x81C00000);
#if MR_TIER_ID == MR_TIER_AVX512
    return (R)(U)_mm512_permutexvar_epi32((__m512i)(w >> (unsigned)at),
                                          _mm512_loadu_si512(element_bits));
#else
    return (R)((U)((M)(w << (unsigned)(28 - at)) >> 6) & 0x81C00000);
#endif
}
#endif

/* Code j of each lane as a number. */
INLINE R
number_at(U w, const int j, const mr_quant_kind kind, const form how)
{
    const int bits = kind_bits(kind), at = j * bits;

#if HAS_BITS
    if (how == BITS && kind == CLEAN)
        return (R)((U)((M)(w << (unsigned)(24 - at)) >> 4) & 0x87F00000);
    if (how == BITS && kind == MR_QUANT_E4M3)
        return number(w >> (unsigned)at, kind) * C(0x1p-120F);
    if (how == BITS)
        return kind == MR_QUANT_E2M1 ? element_of_bits(w, at)
                                     : number_of_bits(w, at, bits);
#endif
#if MR_TIER_ID == MR_TIER_AVX512
    if (how == PLACED)
        return (R)_mm512_cvtepu32_ps((__m512i)code_in_place(w, at, bits));
#else
    (void)how;
#endif
    if (kind == CLEAN)
        return number_e4m3_top((U)((M)(w << (unsigned)(24 - at)) >> 4));
    return number(w >> (unsigned)at, kind);
}

#define TARGET
#define NAMED(x) x
#if MR_TIER_ID == MR_TIER_AVX2
#define OF_BITS
#define E4M3_HALVES
#endif
#include "kernels/tier/quant_dot.h"
#undef TARGET
#undef NAMED
#if MR_TIER_ID == MR_TIER_AVX512
/* The same for processors that shuffle bytes of whole registers and multiply
 * matrices of bits. */
#define TARGET   __attribute__((target("avx512vbmi,gfni")))
#define NAMED(x) bytes_##x
#define PICKS_BYTES
#define OF_BITS
#include "kernels/tier/e4m3.h"
#include "kernels/tier/quant_dot.h"
#endif

#define KERNELS(name, kind)                                                    \
    static void unpack_##name(const uint8_t *from, int64_t n, int64_t behind,  \
                              float *to)                                       \
    {                                                                          \
        unpack(from, n, behind, to, kind);                                     \
    }                                                                          \
    static void turned_##name(const uint32_t *words, int64_t n,                \
                              const float *scale, const float *bias,           \
                              float *to, int64_t step)                         \
    {                                                                          \
        turned(words, n, scale, bias, to, step, kind);                         \
    }
KERNELS(1, MR_QUANT_1)
KERNELS(2, MR_QUANT_2)
KERNELS(3, MR_QUANT_3)
KERNELS(4, MR_QUANT_4)
KERNELS(5, MR_QUANT_5)
KERNELS(6, MR_QUANT_6)
KERNELS(8, MR_QUANT_8)
KERNELS(e2m1, MR_QUANT_E2M1)
KERNELS(e4m3, MR_QUANT_E4M3)

/* The sum of 16 lanes of each of n rows: halves added to halves. */
static void
sums(float (*lanes)[16], int n, float *to)
{
    for (int i = 0; i < n; i++) {
        float *a = lanes[i];
        F4 b[4];

        memcpy(b, a, sizeof b);
        b[0] = (b[0] + b[2]) + (b[1] + b[3]);
        to[i] = (b[0][0] + b[0][2]) + (b[0][1] + b[0][3]);
    }
}

/* ---- scales of a byte ------------------------------------------------------
 * Loops that the compiler makes vectors of, but for those that many rows at a
 * time go through. */

/* The largest of n bytes less `below`, of which `bits` count. */
static uint8_t
most_of(const uint8_t *from, int64_t n, uint8_t below, uint8_t bits)
{
    uint8_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        uint8_t x = (uint8_t)(from[i] - below) & bits;

        most = x > most ? x : most;
    }
    return most;
}

#if MR_TIER_ID == MR_TIER_AVX512
INLINE U
bytes_16(const uint8_t *from)
{
    return (U)_mm512_cvtepu8_epi32(
        _mm_loadu_si128((const __m128i *)(const void *)from));
}

/* The same, their signs in all bits above. */
INLINE U
signed_16(const uint8_t *from)
{
    return (U)_mm512_cvtepi8_epi32(
        _mm_loadu_si128((const __m128i *)(const void *)from));
}
#endif

/* Where all are powers of two that are normal numbers, and in the next one none
 * is NaN, sixteen at a time. */
static void
scales_e8m0(const uint8_t *from, int64_t n, float *to)
{
    int64_t i = 0;

#if MR_TIER_ID == MR_TIER_AVX512
    if (most_of(from, n, 1, 0xff) < 254)
        for (; i + 16 <= n; i += 16)
            v_store(to + i, (R)(bytes_16(from + i) << 23));
#endif
    for (; i < n; i++) {
        uint32_t byte = from[i], bits = byte << 23;

        bits = byte == 0 ? 0x00400000 : bits;
        bits = byte == 255 ? 0x7fc00000 : bits;
        memcpy(to + i, &bits, sizeof bits);
    }
}

static void
scales_e4m3(const uint8_t *from, int64_t n, float *to)
{
    int64_t i = 0;

#if MR_TIER_ID == MR_TIER_AVX512
    if (most_of(from, n, 0, 0x7f) < 0x7f)
        for (; i + 16 <= n; i += 16)
            v_store(to + i, number_e4m3_top(signed_16(from + i) << 20));
#endif
    for (; i < n; i++) {
        uint32_t byte = from[i], bits = (byte & 0x7f) << 20;
        float x;

        memcpy(&x, &bits, sizeof x);
        x *= 0x1p120F;
        memcpy(&bits, &x, sizeof x);
        bits = (byte & 0x7f) == 0x7f ? 0x7fc00000 : bits | (byte & 0x80) << 24;
        memcpy(to + i, &bits, sizeof bits);
    }
}

static bool
raised(const float *from, int64_t n, float *to)
{
    const M size = (M)u_set(0x7fffffff), huge = (M)u_set((127 + 87) << 23);
    M less = (M)u_set(0x80000000); /* in the sign */

    for (int64_t i = 0; i < n; i += N_LANES) {
        R x = v_load(from + i);

        less &= ((M)x & size) - huge;
        v_store(to + i, x * C(MR_QUANT_RAISED));
    }
    return !m_any(less == 0);
}

/* 2^40 more is 40 in the exponent. */
static bool
raised_e8m0(const uint8_t *from, int64_t n, float *to)
{
    int64_t i = 0;

#if MR_TIER_ID == MR_TIER_AVX512
    for (; i + 16 <= n; i += 16)
        v_store(to + i, (R)((bytes_16(from + i) + 40) << 23));
#endif
    for (; i < n; i++) {
        uint32_t bits = ((uint32_t)from[i] + 40) << 23;

        memcpy(to + i, &bits, sizeof bits);
    }
    return most_of(from, n, 0, 0xff) < 127 + 87;
}

static bool
raised_e4m3(const uint8_t *from, int64_t n, float *to)
{
    int64_t i = 0;

#if MR_TIER_ID == MR_TIER_AVX512
    for (; i + 16 <= n; i += 16)
        v_store(to + i, number_e4m3_top(signed_16(from + i) << 20) *
                            C(MR_QUANT_RAISED));
#endif
    for (; i < n; i++) {
        uint32_t x = from[i], bits = (x & 0x7f) << 20 | (x & 0x80) << 24;
        float y;

        memcpy(&y, &bits, sizeof y);
        to[i] = y * 0x1p120F * MR_QUANT_RAISED;
    }
    return most_of(from, n, 0, 0x7f) < 0x7f;
}

/* ---- making
 * -------------------------------------------------------------------
 */

static void
scale(float *x, int64_t n, float factor, float bias)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] * factor + bias;
}

static void
extremes(const float *x, int n, float *lo, float *hi)
{
    R least = v_load(x), most = least;
    float a[N_LANES], b[N_LANES];
    M nan = v_isnan(least);

    for (int i = N_LANES; i < n; i += N_LANES) {
        R y = v_load(x + i);

        nan = m_or(nan, v_isnan(y));
        least = v_select(v_lt(y, least), y, least);
        most = v_select(v_lt(most, y), y, most);
    }
    v_store(a, least);
    v_store(b, most);
    *lo = a[0];
    *hi = b[0];
    for (int i = 1; i < N_LANES; i++) {
        *lo = a[i] < *lo ? a[i] : *lo;
        *hi = *hi < b[i] ? b[i] : *hi;
    }
    if (m_any(nan)) {
        uint32_t bits = 0x7fc00000;

        memcpy(lo, &bits, sizeof bits);
        memcpy(hi, &bits, sizeof bits);
    }
}

static void
codes(const float *x, int n, float factor, float bias, float largest,
      uint32_t *to)
{
    for (int i = 0; i < n; i += N_LANES) {
        R q = v_round((v_load(x + i) - v_set(bias)) / v_set(factor));
        U c;

        q = v_select(v_lt(q, v_set(largest)), q, v_set(largest));
        q = v_select(v_lt((R){0}, q), q, (R){0});
        /* NaN: it was not below the largest, but is no number either */
        q = v_select(v_isnan(v_load(x + i) / v_set(factor)), (R){0}, q);
        c = (U) __builtin_convertvector(q, M);
        memcpy(to + i, &c, sizeof c);
    }
}

#define ROWS(name)                                                             \
    {                                                                          \
        name##_1, name##_2, name##_4                                           \
    }
const mr_quant_tier MR_TIER_SYM(mr__quant_tier) = {
    .unpack = {unpack_1, unpack_2, unpack_3, unpack_4, unpack_5, unpack_6,
               unpack_8, unpack_e2m1, unpack_e4m3},
    .lanes = N_LANES,
    .turned = {turned_1, turned_2, turned_3, turned_4, turned_5, turned_6,
               turned_8, turned_e2m1, turned_e4m3},
    .dot = {ROWS(dot_1), ROWS(dot_2), ROWS(dot_3), ROWS(dot_4), ROWS(dot_5),
            ROWS(dot_6), ROWS(dot_8), ROWS(dot_e2m1), ROWS(dot_e4m3)},
#if MR_TIER_ID == MR_TIER_AVX512
    .in_place = {[MR_QUANT_1] = ROWS(in_place_1),
                 [MR_QUANT_2] = ROWS(in_place_2),
                 [MR_QUANT_4] = ROWS(in_place_4),
                 [MR_QUANT_8] = ROWS(in_place_8)},
    .bytes = {[MR_QUANT_3] = ROWS(in_place_3),
              [MR_QUANT_5] = ROWS(in_place_5),
              [MR_QUANT_6] = ROWS(in_place_6),
              [MR_QUANT_E4M3] = ROWS(in_place_e4m3)},
#endif
#if HAS_BITS
#if MR_TIER_ID == MR_TIER_AVX512
    /* Zen 3: 32 masks are 1.4 times as long as shifts and conversions */
    .bits[MR_QUANT_1] = ROWS(bits_1),
#endif
    .bits[MR_QUANT_2] = ROWS(bits_2),
    .bits[MR_QUANT_3] = ROWS(bits_3),
    .bits[MR_QUANT_4] = ROWS(bits_4),
    .bits[MR_QUANT_5] = ROWS(bits_5),
    .bits[MR_QUANT_6] = ROWS(bits_6),
    .bits[MR_QUANT_8] = ROWS(bits_8),
    .bits[MR_QUANT_E2M1] = ROWS(bits_e2m1),
    .bits[MR_QUANT_E4M3] = ROWS(bits_e4m3),
#endif
    .raised = raised,
    .raised_bytes = {raised_e8m0, raised_e4m3},
    .sums = sums,
    .scales = {scales_e8m0, scales_e4m3},
    .scale = scale,
    .extremes = extremes,
    .codes = codes,
};
