/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- unpacking of codes and products with packed rows, once per
 * instruction set.
 *
 * Words of 1, 2 and 4 bits are taken 16 at a time, one a lane, and shifted:
 * codes need no shuffle, and a table of 16 numbers turns the low four bits of
 * a lane into a number without mask or conversion.  Other widths go 16 codes
 * at a time: each lane gets the two bytes that hold its code, is shifted and
 * masked.  ../quant.h has the order of the sums.
 */
#include "kernels/quant.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#define VECTORS (16 / N_LANES) /* of the 16 virtual lanes */

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

/* Of a code whose sign fills the lane; NaN is taken for 480. */
INLINE R
number_e4m3_signed(U c)
{
    return (R)((c << 20) & 0x87F00000) * C(0x1p120F);
}

INLINE R
number_e4m3(U c)
{
    M nan = (M)((c & 0x7f) == 0x7f);
    R x = number_e4m3_signed((U)((M)(c << 24) >> 24));

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
        uint64_t word; /* 4 codes of 8 bits and more of others */
        U c = {0};

        memcpy(&word, from, sizeof word);
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

INLINE void
turned(const uint32_t *words, int64_t n, const float *scale, const float *bias,
       float *to, int64_t step, const mr_quant_kind kind)
{
    const int bits = kind_bits(kind);
    R s = v_load(scale), b = v_load(bias);

    for (; n >= 32; n -= 32, words += bits * N_LANES, to += 32 * step)
#pragma GCC unroll 32
        for (int j = 0; j < 32; j++)
            v_store(to + j * step,
                    number(lane_code(words, j, bits), kind) * s + b);
    if (n >= 16 && bits % 2 == 0)
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++)
            v_store(to + j * step,
                    number(lane_code(words, j, bits), kind) * s + b);
}

/* ---- products
 * ----------------------------------------------------------------
 */

/* Bytes that come next are brought near this far ahead: rows are read once and
 * no prefetcher follows them from a page to the next. */
#define AHEAD 4096

INLINE void
bring(const uint8_t *from)
{
    __builtin_prefetch((const void *)((uintptr_t)from + AHEAD));
}

INLINE void
bring_group(const uint8_t *from, int n_bytes)
{
    for (int i = 0; i < n_bytes; i += 64)
        bring(from + i);
}

INLINE void
lanes_load(R (*sum)[VECTORS], float (*lanes)[16], const int m)
{
    for (int i = 0; i < m; i++)
        for (int v = 0; v < VECTORS; v++)
            sum[i][v] = v_load(lanes[i] + v * N_LANES);
}

INLINE void
lanes_store(R (*sum)[VECTORS], float (*lanes)[16], const int m)
{
    for (int i = 0; i < m; i++)
        for (int v = 0; v < VECTORS; v++)
            v_store(lanes[i] + v * N_LANES, sum[i][v]);
}

/* Biases times the sums of x: group g in lane g % 16. */
INLINE void
add_biases(const mr_quant_span *s, const float *const *x_sums,
           R (*sum)[VECTORS], const int m)
{
    if (!s->bias)
        return;
    for (int g = 0; g < s->n_groups; g += 16) {
        const float *biases = s->bias + g;
        float last[16] = {0.0F};

        if (s->n_groups - g < 16) {
            memcpy(last, biases, (size_t)(s->n_groups - g) * sizeof *last);
            biases = last;
        }
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            R b = v_load(biases + v * N_LANES);

#pragma GCC unroll 4
            for (int i = 0; i < m; i++)
                sum[i][v] = multiply_add(b, v_load(x_sums[i] + g + v * N_LANES),
                                         sum[i][v]);
        }
    }
}

/* The scales of 16 words, one a lane: `per` is words a group, 1 << shift. */
INLINE R
word_scales(const float *scale, const int v, int shift)
{
    M word;

    memcpy(&word, lane_number, sizeof word);
    return v_pick(scale, (U)((word + v * N_LANES) >> shift));
}

/* A block of 16 words. */
INLINE void
block(const U *w, const R *scale, const float *const *x, int64_t at,
      R (*sum)[VECTORS], const mr_quant_kind kind, const int m)
{
    const int bits = kind_bits(kind), count = 32 / bits;

#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        R t[MR_QUANT_ROWS];

#pragma GCC unroll 4
        for (int i = 0; i < m; i++)
            t[i] = (R){0};
#pragma GCC unroll 32
        for (int j = 0; j < count; j++) {
            R q = number(w[v] >> (unsigned)(j * bits), kind);

#pragma GCC unroll 4
            for (int i = 0; i < m; i++)
                t[i] = multiply_add(v_load(x[i] + at + j * 16 + v * N_LANES), q,
                                    t[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < m; i++)
            sum[i][v] = multiply_add(t[i], scale[v], sum[i][v]);
    }
}

INLINE void
dot_words(const mr_quant_span *s, const float *const *x,
          const float *const *x_sums, float (*lanes)[16],
          const mr_quant_kind kind, const int m)
{
    const int count = 32 / kind_bits(kind);
    int64_t words = s->n / count, at = 0;
    int per = s->group / count, shift = __builtin_ctz((unsigned)per);
    R sum[MR_QUANT_ROWS][VECTORS], scale[VECTORS];
    U w[VECTORS];

    lanes_load(sum, lanes, m);
    for (; at + 16 <= words; at += 16) {
        const uint8_t *from = s->from + at * 4;
        const float *scales = s->scale + (at >> shift);

        bring(from);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            w[v] = u_load(from + v * VEC_BYTES);
            scale[v] = word_scales(scales, v, shift);
        }
        block(w, scale, x, at * count, sum, kind, m);
    }
    if (at < words) {
        uint32_t last[16] = {0};
        float scales[16] = {0.0F};

        memcpy(last, s->from + at * 4, (size_t)(words - at) * 4);
        memcpy(scales, s->scale + (at >> shift),
               (size_t)(s->n_groups - (at >> shift)) * sizeof *scales);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            w[v] = u_load(last + v * N_LANES);
            scale[v] = word_scales(scales, v, shift);
        }
        block(w, scale, x, at * count, sum, kind, m);
    }
    add_biases(s, x_sums, sum, m);
    lanes_store(sum, lanes, m);
}

/* The N_LANES codes of 8 bits at a byte as numbers; E4M3: none of them NaN. */
INLINE R
bytes_numbers(const uint8_t *from, const bool e4m3)
{
#if MR_TIER_ID == MR_TIER_AVX512
    if (e4m3)
        return number_e4m3_signed((U)_mm512_cvtepi8_epi32(
            _mm_loadu_si128((const __m128i *)(const void *)from)));
#elif MR_TIER_ID == MR_TIER_AVX2
    if (e4m3)
        return number_e4m3_signed((U)_mm256_cvtepi8_epi32(
            _mm_loadl_epi64((const __m128i *)(const void *)from)));
#endif
    U c = codes_at(from, 8);

    if (e4m3)
        return number_e4m3_signed((U)((M)(c << 24) >> 24));
#if N_LANES == 4
    c &= 0xff;
#endif
    return u_to_float(c);
}

INLINE void
dot_whole_bytes(const mr_quant_span *s, const float *const *x,
                const float *const *x_sums, float (*lanes)[16], const bool e4m3,
                const int m)
{
    R sum[MR_QUANT_ROWS][VECTORS], t[MR_QUANT_ROWS][VECTORS];
    const uint8_t *from = s->from;
    int64_t at = 0;

    lanes_load(sum, lanes, m);
    for (int g = 0; g < s->n_groups; g++) {
        R scale = v_set(s->scale[g]);

        for (int i = 0; i < m; i++)
            for (int v = 0; v < VECTORS; v++)
                t[i][v] = (R){0};
        bring_group(from, s->group);
        for (int k = 0; k < s->group; k += 16, at += 16, from += 16)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                R q = bytes_numbers(from + v * N_LANES, e4m3);

#pragma GCC unroll 4
                for (int i = 0; i < m; i++)
                    t[i][v] = multiply_add(v_load(x[i] + at + v * N_LANES), q,
                                           t[i][v]);
            }
        for (int i = 0; i < m; i++)
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] = multiply_add(t[i][v], scale, sum[i][v]);
    }
    add_biases(s, x_sums, sum, m);
    lanes_store(sum, lanes, m);
}

/* n is a multiple of 16: of each byte, whether its seven low bits are set. */
static bool
e4m3_has_nan(const uint8_t *from, int64_t n)
{
    uint64_t found = 0;

    for (int64_t i = 0; i < n; i += 16) {
        uint64_t x[2];

        memcpy(x, from + i, sizeof x);
        for (int j = 0; j < 2; j++)
            found |= (x[j] & 0x7F7F7F7F7F7F7F7F) + 0x0101010101010101;
    }
    return (found & 0x8080808080808080) != 0;
}

/* 16 codes in a row: t += x * code. */
INLINE void
sixteen(const uint8_t *from, const float *const *x, int64_t at, R (*t)[VECTORS],
        const mr_quant_kind kind, const int m)
{
    const int bits = kind_bits(kind);
    float numbers[16];

    if (STEP > N_LANES) {
        step_numbers(from, numbers, kind);
        step_numbers(from + bits, numbers + 8, kind);
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        R q = STEP > N_LANES
                  ? v_load(numbers + v * N_LANES)
                  : number(codes_at(from + v * N_LANES * bits / 8, bits), kind);

#pragma GCC unroll 4
        for (int i = 0; i < m; i++)
            t[i][v] = multiply_add(v_load(x[i] + at + v * N_LANES), q, t[i][v]);
    }
}

INLINE void
dot_codes(const mr_quant_span *s, const float *const *x,
          const float *const *x_sums, float (*lanes)[16],
          const mr_quant_kind kind, const int m)
{
    const int bits = kind_bits(kind);
    R sum[MR_QUANT_ROWS][VECTORS], t[MR_QUANT_ROWS][VECTORS];
    uint8_t last[128 + BEHIND] = {0};
    const uint8_t *from = s->from;
    int64_t at = 0;

    if (kind == MR_QUANT_8 ||
        (kind == MR_QUANT_E4M3 && !e4m3_has_nan(s->from, s->n))) {
        dot_whole_bytes(s, x, x_sums, lanes, kind == MR_QUANT_E4M3, m);
        return;
    }
    lanes_load(sum, lanes, m);
    for (int g = 0; g < s->n_groups; g++) {
        R scale = v_set(s->scale[g]);

        if (g == s->n_groups - 1) { /* it may be read behind its end */
            memcpy(last, from, (size_t)(s->group * bits / 8));
            from = last;
        }
        for (int i = 0; i < m; i++)
            for (int v = 0; v < VECTORS; v++)
                t[i][v] = (R){0};
        bring_group(from, s->group * bits / 8);
        for (int k = 0; k < s->group; k += 16, at += 16, from += 2 * bits)
            sixteen(from, x, at, t, kind, m);
        for (int i = 0; i < m; i++)
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] = multiply_add(t[i][v], scale, sum[i][v]);
    }
    add_biases(s, x_sums, sum, m);
    lanes_store(sum, lanes, m);
}

#if MR_TIER_ID == MR_TIER_AVX512
/* Codes of 3, 5 and 6 bits by 64 at once, on processors that pick any eight
 * bits of a word for each byte: the same numbers in the same order, in fewer
 * instructions.  Groups are of 64 or 128. */
#define BYTES      __attribute__((target("avx512vbmi")))
#define FAR_BEHIND 64

#define SPREAD_8(q, b)                                                         \
    (q) * (b), (q) * (b) + 1, (q) * (b) + 2, (q) * (b) + 3, (q) * (b) + 4,     \
        (q) * (b) + 5, 0, 0
#define SPREAD(b)                                                              \
    {                                                                          \
        SPREAD_8(0, b), SPREAD_8(1, b), SPREAD_8(2, b), SPREAD_8(3, b),        \
            SPREAD_8(4, b), SPREAD_8(5, b), SPREAD_8(6, b), SPREAD_8(7, b)     \
    }
/* Eight codes to a word; then the first bit of each in it. */
static const uint8_t spread[7][64] = {{0}, {0},       {0},      SPREAD(3),
                                      {0}, SPREAD(5), SPREAD(6)};
#define FIRST_BITS(b) (0x0706050403020100ULL * (b)&0x3F3F3F3F3F3F3F3FULL)

static inline __attribute__((always_inline, target("avx512vbmi"))) __m512i
codes_64(const uint8_t *from, const int bits)
{
    __m512i first = _mm512_set1_epi64((long long)FIRST_BITS((unsigned)bits));
    __m512i c = _mm512_permutexvar_epi8(_mm512_loadu_si512(spread[bits]),
                                        _mm512_loadu_si512(from));

    c = _mm512_multishift_epi64_epi8(first, c);
    return _mm512_and_si512(c, _mm512_set1_epi8((char)((1 << bits) - 1)));
}

/* Bytes 16 q ... as lanes. */
static inline __attribute__((always_inline, target("avx512vbmi"))) R
quarter(__m512i c, const int q)
{
    __m512i at = _mm512_loadu_si512(lane_number);

    at = _mm512_add_epi32(at, _mm512_set1_epi32(16 * q));
    return (R)_mm512_cvtepi32_ps(
        _mm512_maskz_permutexvar_epi8(0x1111111111111111ULL, at, c));
}

static inline __attribute__((always_inline, target("avx512vbmi"))) void
dot_bytes(const mr_quant_span *s, const float *const *x,
          const float *const *x_sums, float (*lanes)[16], const int bits,
          const int m)
{
    R sum[MR_QUANT_ROWS][VECTORS];
    uint8_t last[128 + FAR_BEHIND] = {0};
    const uint8_t *from = s->from;
    int64_t at = 0;

    lanes_load(sum, lanes, m);
    for (int g = 0; g < s->n_groups; g++) {
        R scale = v_set(s->scale[g]), t[MR_QUANT_ROWS];

        if (g >= s->n_groups - 2) { /* they may be read behind their end */
            memcpy(last, from, (size_t)(s->group * bits / 8));
            from = last;
        }
        for (int i = 0; i < m; i++)
            t[i] = (R){0};
        for (int k = 0; k < s->group; k += 64, at += 64, from += 8 * bits) {
            __m512i c = codes_64(from, bits);

            bring(from);
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++) {
                R number = quarter(c, q);

#pragma GCC unroll 4
                for (int i = 0; i < m; i++)
                    t[i] =
                        multiply_add(v_load(x[i] + at + 16 * q), number, t[i]);
            }
        }
        if (g >= s->n_groups - 2)
            from = s->from + (g + 1) * (s->group * bits / 8);
        for (int i = 0; i < m; i++)
            sum[i][0] = multiply_add(t[i], scale, sum[i][0]);
    }
    add_biases(s, x_sums, sum, m);
    lanes_store(sum, lanes, m);
}

#define DOT_BYTES(name, bits, m)                                               \
    BYTES static void name(const mr_quant_span *s, const float *const *x,      \
                           const float *const *x_sums, float(*lanes)[16])      \
    {                                                                          \
        dot_bytes(s, x, x_sums, lanes, bits, m);                               \
    }
DOT_BYTES(bytes_3_1, 3, 1)
DOT_BYTES(bytes_3_2, 3, 2)
DOT_BYTES(bytes_3_4, 3, 4)
DOT_BYTES(bytes_5_1, 5, 1)
DOT_BYTES(bytes_5_2, 5, 2)
DOT_BYTES(bytes_5_4, 5, 4)
DOT_BYTES(bytes_6_1, 6, 1)
DOT_BYTES(bytes_6_2, 6, 2)
DOT_BYTES(bytes_6_4, 6, 4)
#endif

#define DOT(name, how, kind, m)                                                \
    static void name(const mr_quant_span *s, const float *const *x,            \
                     const float *const *x_sums, float(*lanes)[16])            \
    {                                                                          \
        how(s, x, x_sums, lanes, kind, m);                                     \
    }
#define KERNELS(name, how, kind)                                               \
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
    }                                                                          \
    DOT(dot_##name##_1, how, kind, 1)                                          \
    DOT(dot_##name##_2, how, kind, 2)                                          \
    DOT(dot_##name##_4, how, kind, 4)
KERNELS(1, dot_words, MR_QUANT_1)
KERNELS(2, dot_words, MR_QUANT_2)
KERNELS(3, dot_codes, MR_QUANT_3)
KERNELS(4, dot_words, MR_QUANT_4)
KERNELS(5, dot_codes, MR_QUANT_5)
KERNELS(6, dot_codes, MR_QUANT_6)
KERNELS(8, dot_codes, MR_QUANT_8)
KERNELS(e2m1, dot_words, MR_QUANT_E2M1)
KERNELS(e4m3, dot_codes, MR_QUANT_E4M3)

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
 * Loops that the compiler makes vectors of. */

static void
scales_e8m0(const uint8_t *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t byte = from[i], bits = byte << 23;

        bits = byte == 0 ? 0x00400000 : bits;
        bits = byte == 255 ? 0x7fc00000 : bits;
        memcpy(to + i, &bits, sizeof bits);
    }
}

static void
scales_e4m3(const uint8_t *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t byte = from[i], bits = (byte & 0x7f) << 20;
        float x;

        memcpy(&x, &bits, sizeof x);
        x *= 0x1p120F;
        memcpy(&bits, &x, sizeof x);
        bits = (byte & 0x7f) == 0x7f ? 0x7fc00000 : bits | (byte & 0x80) << 24;
        memcpy(to + i, &bits, sizeof bits);
    }
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
        dot_##name##_1, dot_##name##_2, dot_##name##_4                         \
    }
const mr_quant_tier MR_TIER_SYM(mr__quant_tier) = {
    .unpack = {unpack_1, unpack_2, unpack_3, unpack_4, unpack_5, unpack_6,
               unpack_8, unpack_e2m1, unpack_e4m3},
    .lanes = N_LANES,
    .turned = {turned_1, turned_2, turned_3, turned_4, turned_5, turned_6,
               turned_8, turned_e2m1, turned_e4m3},
    .dot = {ROWS(1), ROWS(2), ROWS(3), ROWS(4), ROWS(5), ROWS(6), ROWS(8),
            ROWS(e2m1), ROWS(e4m3)},
#if MR_TIER_ID == MR_TIER_AVX512
    .bytes = {[MR_QUANT_3] = {bytes_3_1, bytes_3_2, bytes_3_4},
              [MR_QUANT_5] = {bytes_5_1, bytes_5_2, bytes_5_4},
              [MR_QUANT_6] = {bytes_6_1, bytes_6_2, bytes_6_4}},
#endif
    .sums = sums,
    .scales = {scales_e8m0, scales_e4m3},
    .scale = scale,
    .extremes = extremes,
    .codes = codes,
};
