/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_digits.c -- codes as bytes times digits of x, for processors that
 * multiply 64 bytes at once (kernels/quant_digits.h); elements of 4 bits on
 * those with 32 (AVX2), below.
 *
 * A cell is 64 bytes of a row's stream, or the 48 or 40 that 128 codes of 3
 * bits or 64 of 6 or 5 take: 16 lanes of codes next to each other.  A block is
 * two cells, or four of 64 codes, mixed so that a lane has codes of one group
 * in all of them: so fewer sums are to be scaled.  Then codes go to planes, one
 * of each byte, and the planes meet those of the digits.  A digit has a sum of
 * its own, so that products need not wait for each other; the two upper ones
 * are joined, as are the lower ones: both are exact, each is rounded to a
 * float.
 *
 * x of a block: its digits, the uppermost first, each all planes; what lanes
 * are multiplied by; for elements, which are taken for bytes from 0 on, what
 * both sums begin with.
 */
#include "kernels/quant_digits.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#if MR_TIER_ID == MR_TIER_AVX512
#include "kernels/tier/quant_walk.h"

#define WITH   __attribute__((target("avx512vnni,avx512vbmi,avx512bw,gfni")))
#define WITHIN WITH static inline __attribute__((always_inline))

enum {
    DIGITS = 4,
    MOST_CELLS = 4,
    MOST_ROWS = 4,    /* of w together */
    MOST_SUMS = 4,    /* of these and rows of x */
    MOST_CODES = 512, /* of a block */
    CELL_READ = 64,   /* bytes that are read for one */
    MOST_BYTES = 256, /* of a block */
    ELEMENT_OFF = 12, /* bytes of elements are twice the element and this */
    AHEAD = 8192      /* bytes that are brought near, at least */
};

/* ---- codes ------------------------------------------------------------------
 */

/* Planes of a cell. */
WITHIN int
kind_planes(const mr_quant_kind kind)
{
    return kind == MR_QUANT_2 ? 4
           : kind == MR_QUANT_3 || kind == MR_QUANT_4 || kind == MR_QUANT_E2M1
               ? 2
               : 1;
}

/* Cells of a block. */
WITHIN int
kind_cells(const mr_quant_kind kind)
{
    return kind_planes(kind) == 1 ? 4 : 2;
}

/* Bytes of a cell. */
WITHIN int
kind_bytes(const mr_quant_kind kind)
{
    return kind == MR_QUANT_3 || kind == MR_QUANT_6 ? 48
           : kind == MR_QUANT_5                     ? 40
                                                    : 64;
}

/* The 48 or 40 bytes by sixes or fives, at the beginnings of words of 64 bits.
 */
#define APART(q, n)                                                            \
    (q) * (n), (q) * (n) + 1, (q) * (n) + 2, (q) * (n) + 3, (q) * (n) + 4,     \
        (q) * (n) + 5, (q) * (n) + 6, (q) * (n) + 7
#define ALL_APART(n)                                                           \
    {                                                                          \
        APART(0, n), APART(1, n), APART(2, n), APART(3, n), APART(4, n),       \
            APART(5, n), APART(6, n), APART(7, n)                              \
    }
static const uint8_t bytes_apart[2][64] = {ALL_APART(6), ALL_APART(5)};
/* Where in such a word the codes of its bytes begin: 5 bits; 6, or two of 3. */
static const uint8_t places[2][8] = {{0, 5, 10, 15, 20, 25, 30, 35},
                                     {0, 6, 12, 18, 24, 30, 36, 42}};
/* Twice the elements of 4 bits and ELEMENT_OFF. */
#define ELEMENTS 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0
static const uint8_t elements[64] = {ELEMENTS, ELEMENTS, ELEMENTS, ELEMENTS};

/* Bytes of eight equal words. */
WITHIN __m512i
eight(const uint8_t *from)
{
    int64_t word;

    memcpy(&word, from, sizeof word);
    return _mm512_set1_epi64(word);
}

/* n bits of each byte from bit `at` on, as a product of matrices of bits: one
 * instruction, where a shift needs a mask too. */
WITHIN __m512i
bits_at(__m512i x, const int at, const int n)
{
    uint64_t matrix = 0;

    if (at == 0)
        return _mm512_and_si512(x, _mm512_set1_epi8((char)((1 << n) - 1)));
    for (int i = 0; i < n; i++)
        matrix |= (uint64_t)1 << (8 * (7 - i) + i + at);
    return _mm512_gf2p8affine_epi64_epi8(
        x, _mm512_set1_epi64((long long)matrix), 0);
}

/* Plane j of a cell's bytes. */
WITHIN __m512i
plane(__m512i x, const int j, const mr_quant_kind kind)
{
    switch (kind) {
    case MR_QUANT_2:
        return bits_at(x, 2 * j, 2);
    case MR_QUANT_3:
        return bits_at(x, 3 * j, 3);
    case MR_QUANT_4:
        return bits_at(x, 4 * j, 4);
    case MR_QUANT_5:
        return bits_at(x, 0, 5);
    case MR_QUANT_6:
        return bits_at(x, 0, 6);
    case MR_QUANT_E2M1: /* by the six low bits, of which four count */
        return _mm512_permutexvar_epi8(j == 0 ? x : _mm512_srli_epi16(x, 4),
                                       _mm512_loadu_si512(elements));
    case MR_QUANT_1:
    case MR_QUANT_8:
    case MR_QUANT_E4M3:
    case MR_N_QUANT_KINDS:
        break;
    }
    return x;
}

/* What scales are: floats, also where a block has those of four groups, or
 * bytes. */
typedef enum scaling {
    SCALES,
    SCALES_FOUR,
    SCALES_E8M0,
    SCALES_E4M3 /* of groups of 16, not negative; taken for 2^-8 of them */
} scaling;
#define E4M3_LESS 0x1p8F

/* How cells are mixed: pairs first, then the firsts of both pairs and the
 * seconds.  Lanes of a group are next to each other; half of them go to the one
 * result, half to the other.  In the last results groups take turns, so that a
 * vector of four groups' scales is four floats again and again, which a load
 * makes.  `group` is that of a lane, counted from the block's first. */
typedef struct mixing {
    __m512i pair[2], pairs[2], group;
    __m512i byte; /* the same in the uppermost byte, others pick nothing */
    __m512i
        apart[2];   /* the bytes of cells of less than 64 of even number, odd */
    int64_t second; /* bytes from an even cell to where the odd one is read */
} mixing;

/* Lanes that a group has next to each other, `half` in each of two results. */
WITHIN void
halves_find(int half, __m512i *to)
{
    const __m128i bits = _mm_cvtsi32_si128(__builtin_ctz((unsigned)half));
    const __m512i at = _mm512_loadu_si512(lane_number);

    to[0] = _mm512_add_epi32(
        at, _mm512_sll_epi32(_mm512_srl_epi32(at, bits), bits));
    to[1] = _mm512_add_epi32(to[0], _mm512_set1_epi32(half));
}

/* The same with lanes of groups in turns afterwards: `group` is theirs. */
WITHIN void
turns_find(int half, __m512i *to, __m512i *group)
{
    const int groups = N_LANES / half;
    const __m128i bits = _mm_cvtsi32_si128(__builtin_ctz((unsigned)groups));
    const __m128i twice = _mm_cvtsi32_si128(__builtin_ctz((unsigned)half) + 1);
    const __m512i at = _mm512_loadu_si512(lane_number);

    *group = _mm512_and_si512(at, _mm512_set1_epi32(groups - 1));
    to[0] = _mm512_add_epi32(_mm512_sll_epi32(*group, twice),
                             _mm512_srl_epi32(at, bits));
    to[1] = _mm512_add_epi32(to[0], _mm512_set1_epi32(half));
}

/* Are cells of 5 bits read in pairs that need no mixing?  64 bytes of the 80 of
 * two groups of 64 have one half of each, those from byte 16 on the other. */
WITHIN bool
reads_mixed(int group, const mr_quant_kind kind)
{
    return kind == MR_QUANT_5 && group >= 64;
}

WITHIN mixing
mixing_of(int group, const mr_quant_kind kind)
{
    const int lanes = group / (4 * kind_planes(kind)); /* of all cells */
    int half = lanes / 2 < N_LANES ? lanes / 2 : N_LANES;
    mixing m = {.second = kind_bytes(kind)};

    if (kind_cells(kind) == 4) {
        halves_find(half, m.pair);
        turns_find(half / 2, m.pairs, &m.group);
    } else {
        turns_find(half, m.pair, &m.group);
    }
    m.byte = _mm512_or_si512(_mm512_slli_epi32(m.group, 24),
                             _mm512_set1_epi32(0x00808080));
    for (int c = 0; c < 2; c++)
        m.apart[c] = _mm512_loadu_si512(bytes_apart[kind == MR_QUANT_5]);
    if (kind_bytes(kind) == 48) {
        m.second = 32;
        m.apart[1] = _mm512_add_epi8(m.apart[1], _mm512_set1_epi8(16));
    }
    if (reads_mixed(group, kind) && group == 64) {
        const __m512i upper = _mm512_set_epi64(-1, -1, -1, -1, 0, 0, 0, 0);
        const __m512i by = _mm512_and_si512(upper, _mm512_set1_epi8(20));

        m.second = 16;
        m.apart[0] = _mm512_add_epi8(m.apart[0], by);
        m.apart[1] = _mm512_add_epi8(m.apart[0], _mm512_set1_epi8(4));
    }
    return m;
}

/* Bytes of a cell: a code of 5 bits or 6, or two of 3, in front of others'
 * bits, or those of the row. */
WITHIN __m512i
cell_read(const uint8_t *from, __m512i apart, const mr_quant_kind kind)
{
    __m512i x = _mm512_loadu_si512(from);

    if (kind_bytes(kind) == 64)
        return x;
    return _mm512_multishift_epi64_epi8(eight(places[kind != MR_QUANT_5]),
                                        _mm512_permutexvar_epi8(apart, x));
}

/* Mixed cells, in place; `read`: pairs are. */
WITHIN void
cells_mix(__m512i *cell, const mixing *m, const mr_quant_kind kind,
          const bool read)
{
    __m512i a[MOST_CELLS];

#pragma GCC unroll 4
    for (int c = 0; c < kind_cells(kind); c++)
        a[c] = read ? cell[c]
                    : _mm512_permutex2var_epi32(cell[c / 2 * 2], m->pair[c % 2],
                                                cell[c / 2 * 2 + 1]);
#pragma GCC unroll 4
    for (int c = 0; c < kind_cells(kind); c++)
        cell[c] = kind_cells(kind) == 2
                      ? a[c]
                      : _mm512_permutex2var_epi32(a[c / 2], m->pairs[c % 2],
                                                  a[c / 2 + 2]);
}

/* ---- x ----------------------------------------------------------------------
 */

WITHIN int
block_codes(const mr_quant_kind kind)
{
    return kind_cells(kind) * 64 * kind_planes(kind);
}

/* Bytes of x for a block. */
WITHIN int
block_digits(const mr_quant_kind kind)
{
    return DIGITS * block_codes(kind) +
           (kind == MR_QUANT_E2M1 ? 3 : 1) * VEC_BYTES;
}

/* Codes of a block in the order of the planes' bytes: plane j has code j of
 * each byte. */
WITHIN void
order_find(int group, int32_t *to, const mr_quant_kind kind)
{
    const int n = kind_planes(kind);
    mixing m = mixing_of(group, kind);
    __m512i cell[MOST_CELLS];
    int32_t lanes[MOST_CELLS][N_LANES];

    for (int c = 0; c < kind_cells(kind); c++)
        cell[c] = _mm512_add_epi32(_mm512_loadu_si512(lane_number),
                                   _mm512_set1_epi32(c * N_LANES));
    cells_mix(cell, &m, kind, false);
    for (int c = 0; c < kind_cells(kind); c++)
        _mm512_storeu_si512(lanes[c], cell[c]);
    for (int c = 0; c < kind_cells(kind); c++)
        for (int j = 0; j < n; j++)
            for (int b = 0; b < 64; b++)
                *to++ = (lanes[c][b / 4] * 4 + b % 4) * n + j;
}

/* The 16 lanes' largest. */
WITHIN float
largest(__m512 x)
{
    return _mm512_reduce_max_ps(x);
}

/* A group as integers, which `unit` is to be multiplied by. */
WITHIN bool
group_integers(const float *x, int n, int32_t *to, float *unit)
{
    const __m512 least = _mm512_set1_ps(0x1p19F); /* 2^-10 of the largest */
    const __m512i sign = _mm512_set1_epi32(0x7fffffff);
    __m512 most = _mm512_setzero_ps(), factor, back;
    int off = 0, there = 0;
    uint32_t bits;
    float size;

    for (int i = 0; i < n; i += 16)
        most = _mm512_max_ps(
            most, (__m512)_mm512_and_si512(_mm512_loadu_si512(x + i), sign));
    size = largest(most);
    memcpy(&bits, &size, sizeof bits);
    bits >>= 23;
    if (size > 0.0F && bits < 127 - 90)
        return false;
    bits = size > 0.0F ? bits - 29 : 127;
    bits <<= 23;
    memcpy(unit, &bits, sizeof *unit);
    factor = _mm512_set1_ps(1.0F / *unit);
    back = _mm512_set1_ps(*unit);
    for (int i = 0; i < n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i), scaled = _mm512_mul_ps(v, factor);
        __m512i q = _mm512_cvtps_epi32(scaled);
        __mmask16 some =
            _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        __mmask16 wrong = _mm512_cmp_ps_mask(
            v, _mm512_mul_ps(_mm512_cvtepi32_ps(q), back), _CMP_NEQ_UQ);
        __mmask16 small = _mm512_cmp_ps_mask(
            (__m512)_mm512_and_si512((__m512i)scaled, sign), least, _CMP_LT_OQ);

        _mm512_storeu_si512(to + i, q);
        there += __builtin_popcount(some);
        off += __builtin_popcount((unsigned)(wrong & small));
    }
    return 8 * off <= there;
}

/* Digits of 64 integers, picked by `order`, digits of a plane `apart` bytes. */
WITHIN void
plane_digits(const int32_t *from, const int32_t *order, int64_t apart,
             int8_t *to)
{
    const __m512i half = _mm512_set1_epi32(0x00808080);

    for (int i = 0; i < 64; i += 16) {
        __m512i q =
            _mm512_i32gather_epi32(_mm512_loadu_si512(order + i), from, 4);

        /* what carries to the digit above; then the digit less 128 */
        q = _mm512_xor_si512(_mm512_add_epi32(q, half), half);
        for (int d = DIGITS - 1; d >= 0; d--, q = _mm512_srli_epi32(q, 8))
            _mm_storeu_si128((__m128i *)(void *)(to + d * apart + i),
                             _mm512_cvtepi32_epi8(q));
    }
}

/* What the upper and the lower sum of a block's bytes are more than those of
 * its elements, taken away: what both begin with. */
WITHIN void
begins_find(const int8_t *digits, int32_t (*begins)[N_LANES],
            const mr_quant_kind kind)
{
    const int planes = kind_cells(kind) * kind_planes(kind);
    const __m512i all = _mm512_set1_epi8(ELEMENT_OFF);

    for (int h = 0; h < 2; h++) {
        __m512i sum = _mm512_setzero_si512();

        for (int d = 0; d < 2; d++) {
            sum = _mm512_slli_epi32(sum, 8);
            for (int j = 0; j < planes; j++, digits += 64)
                sum = _mm512_dpbusd_epi32(sum, all, _mm512_loadu_si512(digits));
        }
        _mm512_storeu_si512(begins[h],
                            _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
}

WITHIN bool
arrange_kind(int group, int64_t cols, const float *x, float *to,
             const mr_quant_kind kind)
{
    const int codes = block_codes(kind), planes = codes / 64;
    int32_t order[MOST_CODES], integers[MOST_CODES];
    mixing m = mixing_of(group, kind);

    order_find(group, order, kind);
    for (int64_t k = 0; k < cols; k += codes, x += codes) {
        int64_t n = cols - k < codes ? cols - k : codes;
        int8_t *digits = (int8_t *)to;
        float unit[16] = {0.0F};

        memset(integers + n, 0, (size_t)(codes - n) * sizeof *integers);
        for (int64_t i = 0; i < n; i += group) {
            if (!group_integers(x + i, group, integers + i, unit + i / group))
                return false;
            unit[i / group] *= kind == MR_QUANT_E2M1 ? 0.5F : 1.0F;
        }
        for (int j = 0; j < planes; j++)
            plane_digits(integers, order + 64 * j, codes, digits + 64 * j);
        to += DIGITS * codes / 4;
        _mm512_storeu_ps(to,
                         _mm512_permutexvar_ps(m.group, _mm512_loadu_ps(unit)));
        to += 16;
        if (kind == MR_QUANT_E2M1) {
            begins_find(digits, (int32_t(*)[N_LANES])(void *)to, kind);
            to += 32;
        }
    }
    return true;
}

WITH static bool
arrange(mr_quant_kind kind, int group, int64_t cols, const float *x, float *to)
{
    switch (kind) {
    case MR_QUANT_2:
        return arrange_kind(group, cols, x, to, MR_QUANT_2);
    case MR_QUANT_3:
    case MR_QUANT_4:
        return arrange_kind(group, cols, x, to, MR_QUANT_4);
    case MR_QUANT_E2M1:
        return arrange_kind(group, cols, x, to, MR_QUANT_E2M1);
    case MR_QUANT_5:
    case MR_QUANT_6:
    case MR_QUANT_8:
        return arrange_kind(group, cols, x, to, MR_QUANT_8);
    case MR_QUANT_1:
    case MR_QUANT_E4M3:
    case MR_N_QUANT_KINDS:
        break;
    }
    return false;
}

/* ---- products ---------------------------------------------------------------
 */

/* Where a block of some rows is: each `step` behind the other, as are their
 * scales.  Steps are hidden from the compiler, which else keeps a register for
 * each row, and has not as many. */
typedef struct block {
    const uint8_t *from, *scale;
    int64_t step, scale_step; /* bytes */
} block;

WITHIN int
scale_size(const scaling how)
{
    return how == SCALES || how == SCALES_FOUR ? (int)sizeof(float) : 1;
}

/* A row's scales of a block, each where its lanes are.  Bytes: E8M0 is moved to
 * where a float has its exponent, E4M3, of which each lane has its own, to
 * where float16 has exponent and mantissa: its conversion takes numbers that
 * are not normal as well. */
WITHIN R
block_scales(const uint8_t *from, const mixing *mix, const scaling how)
{
    const __m128i *bytes = (const __m128i *)(const void *)from;
    const float *floats = (const float *)(const void *)from;

    switch (how) {
    case SCALES_FOUR:
        return (R)_mm512_broadcast_f32x4(_mm_loadu_ps(floats));
    case SCALES_E8M0:
        return (R)_mm512_srli_epi32(
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(bytes)),
                                mix->byte),
            1);
    case SCALES_E4M3:
        return (R)_mm512_cvtph_ps(
            _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(bytes)), 7));
    case SCALES:
        break;
    }
    return (R)_mm512_permutexvar_ps(mix->group, _mm512_loadu_ps(floats));
}

/* Four sums to a number: each is 2^8 of the next one. */
WITHIN R
sums_join(const __m512i *sum)
{
    __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(sum[0], 8), sum[1]);
    __m512i lower = _mm512_add_epi32(_mm512_slli_epi32(sum[2], 8), sum[3]);

    return multiply_add((R)_mm512_cvtepi32_ps(upper), v_set(0x1p16F),
                        (R)_mm512_cvtepi32_ps(lower));
}

/* sum[i * nr + r] += row i of x times row r of w. */
WITHIN void
block_meets(const block *at, const mixing *mix, const uint8_t *const *x, R *sum,
            const mr_quant_kind kind, const int m, const int nr,
            const bool read, const scaling how)
{
    const int cells = kind_cells(kind), planes = kind_planes(kind);
    const int bytes = kind_bytes(kind);
    const int codes = block_codes(kind);
    /* Two rows of x: two digits first where there are not the registers for
     * the sums of all. */
    const bool few = m > 1 && (cells == 4 || kind == MR_QUANT_3);
    const int times = few ? 2 : 1;
    __m512i cell[MOST_ROWS][MOST_CELLS], part[MOST_SUMS][DIGITS];
    const uint8_t *from = at->from, *scale = at->scale;

#pragma GCC unroll 4
    for (int r = 0; r < nr; r++, from += at->step) {
#pragma GCC unroll 4
        for (int k = 0; k < cells; k++)
            cell[r][k] =
                cell_read(from + k / 2 * 2 * bytes + k % 2 * mix->second,
                          mix->apart[k % 2], kind);
        cells_mix(cell[r], mix, kind, read);
    }
#pragma GCC unroll 4
    for (int i = 0; i < m * nr; i++) {
#pragma GCC unroll 4
        for (int d = 0; d < DIGITS; d++)
            part[i][d] = _mm512_setzero_si512();
        for (int d = 1; kind == MR_QUANT_E2M1 && d < DIGITS; d += 2)
            part[i][d] = _mm512_loadu_si512(x[i / nr] + DIGITS * codes +
                                            (d / 2 + 1) * VEC_BYTES);
    }
#pragma GCC unroll 8
    for (int t = 0; t < times * cells * planes; t++) {
        const int j = t % (cells * planes);
        const int first = t / (cells * planes) * (DIGITS / times);
        __m512i c[MOST_ROWS];

#pragma GCC unroll 4
        for (int r = 0; r < nr; r++)
            c[r] = plane(cell[r][j / planes], j % planes, kind);
#pragma GCC unroll 8
        for (int k = 0; k < DIGITS / times * m; k++) {
            const int d = first + k / m, i = k % m;
            __m512i q = _mm512_loadu_si512(x[i] + d * codes + 64 * j);

            if (nr > 1) /* once, not in each product */
                __asm__("" : "+v"(q));
#pragma GCC unroll 4
            for (int r = 0; r < nr; r++)
                part[i * nr + r][d] =
                    _mm512_dpbusd_epi32(part[i * nr + r][d], c[r], q);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < nr; r++, scale += at->scale_step) {
        R s = block_scales(scale, mix, how);

#pragma GCC unroll 2
        for (int i = 0; i < m; i++) {
            R t = sums_join(part[i * nr + r]) *
                  (R)_mm512_loadu_ps(x[i] + DIGITS * codes);

            sum[i * nr + r] = multiply_add(t, s, sum[i * nr + r]);
        }
    }
}

/* The same of the last `n` codes of rows, of n_groups, from copies: beyond
 * their end is another row, or nothing that may be read. */
WITHIN void
block_copied(const block *at, int64_t n, int64_t n_groups, const mixing *mix,
             const uint8_t *const *x, R *sum, const mr_quant_kind kind,
             const int m, const int nr, const bool read, const scaling how)
{
    const int codes = block_codes(kind);
    const int bytes = kind_cells(kind) * kind_bytes(kind);
    uint8_t last[MOST_ROWS][MOST_BYTES + CELL_READ] = {{0}};
    uint8_t scale[MOST_ROWS][16 * sizeof(float)] = {{0}};
    block copy = {last[0], scale[0], sizeof last[0], sizeof scale[0]};

    n = n < codes ? n : codes;
    n_groups = n_groups < 16 ? n_groups : 16;
    for (int r = 0; r < nr; r++) {
        memcpy(last[r], at->from + r * at->step, (size_t)(n * bytes / codes));
        memcpy(scale[r], at->scale + r * at->scale_step,
               (size_t)(n_groups * scale_size(how)));
    }
    block_meets(&copy, mix, x, sum, kind, m, nr, read, how);
}

/* Blocks that may be read where they are, up to row `row`. */
WITHIN int64_t
whole_blocks(const mr_quant_span *s, int64_t row, const mr_quant_kind kind)
{
    const int bytes = kind_cells(kind) * kind_bytes(kind);
    int64_t blocks = s->n / block_codes(kind);
    int64_t there = s->end - (s->from + row * s->row_bytes);
    int64_t beyond = bytes - kind_bytes(kind) + CELL_READ;
    int64_t most = there < beyond ? 0 : (there - beyond) / bytes + 1;

    return blocks < most ? blocks : most;
}

WITHIN void
rows_meet(const mr_quant_span *s, int64_t row, const float *const *x,
          const float *const *x_sums, float (*lanes)[16],
          const mr_quant_kind kind, const int m, const int nr, const bool read,
          const scaling how)
{
    const int codes = block_codes(kind);
    const int bytes = kind_cells(kind) * kind_bytes(kind);
    const int scale_bytes = scale_size(how);
    int64_t stop = whole_blocks(s, row + nr - 1, kind) * codes;
    int64_t ahead = bytes_ahead(s->row_bytes, nr, AHEAD);
    mixing mix = mixing_of(s->group, kind);
    const uint8_t *digits[MR_QUANT_DIGITS_ROWS];
    R sum[MOST_SUMS];
    block at = {.from = s->from + row * s->row_bytes,
                .scale = scale_bytes == 1 ? s->scale_bytes
                                          : (const uint8_t *)s->scale,
                .step = s->row_bytes,
                .scale_step = s->row_groups * scale_bytes};
    int64_t scales = codes / s->group * scale_bytes; /* bytes of a block's */

    for (int i = 0; i < m; i++)
        digits[i] = (const uint8_t *)x[i];
    for (int c = 0; c < m * nr; c++)
        sum[c] = (R){0};
    at.scale += row * at.scale_step;
    for (int64_t k = 0; k < stop; k += codes) {
        __asm__("" : "+r"(at.step), "+r"(at.scale_step));
#pragma GCC unroll 4
        for (int r = 0; r < nr; r++) {
            for (int i = 0; i < bytes; i += 64)
                bring(at.from + r * at.step + i, ahead);
        }
        block_meets(&at, &mix, digits, sum, kind, m, nr, read, how);
        at.from += bytes;
        at.scale += scales;
#pragma GCC unroll 2
        for (int i = 0; i < m; i++)
            digits[i] += block_digits(kind);
    }
    for (int64_t k = stop; k < s->n; k += codes) {
        block_copied(&at, s->n - k, s->n_groups - k / s->group, &mix, digits,
                     sum, kind, m, nr, read, how);
        at.from += bytes;
        at.scale += scales;
        for (int i = 0; i < m; i++)
            digits[i] += block_digits(kind);
    }
    for (int c = 0; c < m * nr; c++) {
        float *to = lanes[c / nr * MR_QUANT_TOGETHER + row + c % nr];

        sum[c] = multiply_add(
            sum[c], v_set(how == SCALES_E4M3 ? E4M3_LESS : 1.0F), v_load(to));
        if (s->bias)
            add_biases(s, row + c % nr, x_sums[c / nr], sum + c);
        v_store(to, sum[c]);
    }
}

/* Four rows of w at a time, or two, so that digits are read once for them.
 */
WITHIN void
meet_some(const mr_quant_span *s, int rows, const float *const *x,
          const float *const *x_sums, float (*lanes)[16],
          const mr_quant_kind kind, const int m, const bool read,
          const scaling how)
{
    const bool four = kind == MR_QUANT_4 || kind == MR_QUANT_E2M1;
    const int most = m == 1 && four ? 4 : 2;
    int r = 0;

    for (; r + most <= rows; r += most)
        rows_meet(s, r, x, x_sums, lanes, kind, m, most, read, how);
    for (; r < rows; r++)
        rows_meet(s, r, x, x_sums, lanes, kind, m, 1, read, how);
}

WITHIN void
meet(const mr_quant_span *s, int rows, const float *const *x,
     const float *const *x_sums, float (*lanes)[16], const mr_quant_kind kind,
     const int m)
{
    const bool four = s->group * 4 == block_codes(kind);

    if (kind == MR_QUANT_E2M1 && s->scale_bytes && s->bytes_e4m3)
        meet_some(s, rows, x, x_sums, lanes, kind, m, false, SCALES_E4M3);
    else if (kind == MR_QUANT_E2M1 && s->scale_bytes)
        meet_some(s, rows, x, x_sums, lanes, kind, m, false, SCALES_E8M0);
    else if (reads_mixed(s->group, kind) && four)
        meet_some(s, rows, x, x_sums, lanes, kind, m, true, SCALES_FOUR);
    else if (reads_mixed(s->group, kind))
        meet_some(s, rows, x, x_sums, lanes, kind, m, true, SCALES);
    else if (four && kind != MR_QUANT_E2M1)
        meet_some(s, rows, x, x_sums, lanes, kind, m, false, SCALES_FOUR);
    else
        meet_some(s, rows, x, x_sums, lanes, kind, m, false, SCALES);
}

#define MEET(name, kind, m)                                                    \
    WITH static void name(const mr_quant_span *s, int rows,                    \
                          const float *const *x, const float *const *x_sums,   \
                          float(*lanes)[16])                                   \
    {                                                                          \
        meet(s, rows, x, x_sums, lanes, kind, m);                              \
    }
#define MEETS(name, kind)                                                      \
    MEET(meet_##name##_1, kind, 1)                                             \
    MEET(meet_##name##_2, kind, 2)
MEETS(2, MR_QUANT_2)
MEETS(3, MR_QUANT_3)
MEETS(4, MR_QUANT_4)
MEETS(5, MR_QUANT_5)
MEETS(6, MR_QUANT_6)
MEETS(8, MR_QUANT_8)
MEETS(e2m1, MR_QUANT_E2M1)

/* Are all of E4M3 numbers and not negative, all of E8M0 normal numbers? */
WITH static bool
bytes_fit(mr_quant_scale kind, const uint8_t *from, int64_t n)
{
    const __m512i less = _mm512_set1_epi8(kind == MR_SCALE_E4M3 ? 0 : 1);
    const __m512i most =
        _mm512_set1_epi8((char)(kind == MR_SCALE_E4M3 ? 0x7e : 254 - 1));
    __m512i found = _mm512_setzero_si512();

    for (int64_t i = 0; i < n; i += 64) {
        __mmask64 some = n - i < 64 ? (1ULL << (n - i)) - 1 : ~0ULL;
        __m512i x = _mm512_mask_loadu_epi8(less, some, from + i);

        found = _mm512_max_epu8(found, _mm512_sub_epi8(x, less));
    }
    return _mm512_cmpgt_epu8_mask(found, most) == 0;
}

#define FLOATS(codes, vectors) (DIGITS * (codes) / 4 + 16 * (vectors))
const mr_quant_digits MR_TIER_SYM(mr__quant_digits) = {
    .codes = {[MR_QUANT_2] = 512,
              [MR_QUANT_3] = 256,
              [MR_QUANT_4] = 256,
              [MR_QUANT_5] = 256,
              [MR_QUANT_6] = 256,
              [MR_QUANT_8] = 256,
              [MR_QUANT_E2M1] = 256},
    .floats = {[MR_QUANT_2] = FLOATS(512, 1),
               [MR_QUANT_3] = FLOATS(256, 1),
               [MR_QUANT_4] = FLOATS(256, 1),
               [MR_QUANT_5] = FLOATS(256, 1),
               [MR_QUANT_6] = FLOATS(256, 1),
               [MR_QUANT_8] = FLOATS(256, 1),
               [MR_QUANT_E2M1] = FLOATS(256, 3)},
    .arrange = arrange,
    .bytes_fit = bytes_fit,
    .dot = {[MR_QUANT_2] = {meet_2_1, meet_2_2},
            [MR_QUANT_3] = {meet_3_1, meet_3_2},
            [MR_QUANT_4] = {meet_4_1, meet_4_2},
            [MR_QUANT_5] = {meet_5_1, meet_5_2},
            [MR_QUANT_6] = {meet_6_1, meet_6_2},
            [MR_QUANT_8] = {meet_8_1, meet_8_2},
            [MR_QUANT_E2M1] = {meet_e2m1_1, meet_e2m1_2}},
};

#elif MR_TIER_ID == MR_TIER_AVX2
#include "kernels/tier/quant_walk.h"

/* Elements alone, 128 at a time: vpmaddubsw adds two products up in 16 bits,
 * which have room for those of all four planes.  Integers have no use for it:
 * as bits of floats (quant.c) they take as many instructions (Zen 3: 64 codes
 * of 4 bits 6 cycles either way, elements 13 as floats, whose signs are shifts
 * and masks). */
enum {
    DIGITS = 4,
    CODES = 128, /* of a block: two cells of 32 bytes, two planes each */
    BYTES = CODES / 2,
    PLANES = 4,
    TOGETHER = 2,     /* rows of w or of x */
    ELEMENT_OFF = 12, /* bytes of elements are twice the element and this */
    AHEAD = 4096,     /* bytes that are brought near, at least */
    UNITS_AT = DIGITS * CODES / 4,
    BLOCK_FLOATS = UNITS_AT + 3 * N_LANES
};

static const uint8_t elements[VEC_BYTES] = {
    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,
    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

INLINE __m256i
load(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

/* The 16 codes of a lane lie next to each other from here on: eight are its
 * word of the first mixed cell, eight of the second. */
INLINE int
lane_begin(int l)
{
    return l % 4 / 2 * 64 + l / 4 * 32 + l % 2 * 16;
}

/* The group of each lane. */
INLINE __m256i
lane_groups(int group)
{
    int32_t at[N_LANES];

    for (int l = 0; l < N_LANES; l++)
        at[l] = lane_begin(l) / group;
    return load(at);
}

/* A group as integers, which `unit` is to be multiplied by. */
INLINE bool
group_integers(const float *x, int n, int32_t *to, float *unit)
{
    const __m256 sign = _mm256_set1_ps(-0.0F), zero = _mm256_setzero_ps();
    const __m256 least = _mm256_set1_ps(0x1p19F); /* 2^-10 of the largest */
    __m256 most = zero, factor, back;
    float lanes[N_LANES], size = 0.0F;
    int off = 0, there = 0;
    uint32_t bits;

    for (int i = 0; i < n; i += N_LANES)
        most =
            _mm256_max_ps(most, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)));
    _mm256_storeu_ps(lanes, most);
    for (int l = 0; l < N_LANES; l++)
        size = lanes[l] > size ? lanes[l] : size;
    memcpy(&bits, &size, sizeof bits);
    bits >>= 23;
    if (size > 0.0F && bits < 127 - 90)
        return false;
    bits = size > 0.0F ? bits - 29 : 127;
    bits <<= 23;
    memcpy(unit, &bits, sizeof *unit);
    factor = _mm256_set1_ps(1.0F / *unit);
    back = _mm256_set1_ps(*unit);
    for (int i = 0; i < n; i += N_LANES) {
        __m256 v = _mm256_loadu_ps(x + i), scaled = _mm256_mul_ps(v, factor);
        __m256i q = _mm256_cvtps_epi32(scaled);
        __m256 some = _mm256_cmp_ps(v, zero, _CMP_NEQ_UQ);
        __m256 wrong = _mm256_cmp_ps(
            v, _mm256_mul_ps(_mm256_cvtepi32_ps(q), back), _CMP_NEQ_UQ);
        __m256 small =
            _mm256_cmp_ps(_mm256_andnot_ps(sign, scaled), least, _CMP_LT_OQ);

        _mm256_storeu_si256((__m256i *)(void *)(to + i), q);
        there += __builtin_popcount((unsigned)_mm256_movemask_ps(some));
        off += __builtin_popcount(
            (unsigned)_mm256_movemask_ps(_mm256_and_ps(wrong, small)));
    }
    return 8 * off <= there;
}

/* The digits of a lane's eight codes of a mixed cell: those of even number to
 * one plane, the others to the next. */
INLINE void
word_digits(const int32_t *from, int8_t *to)
{
    const __m256i half = _mm256_set1_epi32(0x00808080);
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(3, 11, 2, 10, 1, 9, 0, 8, 7, 15, 6, 14, 5, 13, 4, 12));
    /* what carries to the digit above; then the digit less 128 */
    __m256i q = _mm256_xor_si256(_mm256_add_epi32(load(from), half), half);
    __m128i low, high;
    int32_t even[DIGITS], odd[DIGITS];

    q = _mm256_shuffle_epi8(q, order);
    low = _mm256_castsi256_si128(q);
    high = _mm256_extracti128_si256(q, 1);
    _mm_storeu_si128((__m128i *)(void *)even, _mm_unpacklo_epi16(low, high));
    _mm_storeu_si128((__m128i *)(void *)odd, _mm_unpackhi_epi16(low, high));
    for (int d = 0; d < DIGITS; d++, to += CODES) {
        memcpy(to, even + d, sizeof *even);
        memcpy(to + VEC_BYTES, odd + d, sizeof *odd);
    }
}

/* Two sums of 16 bits, the one 2^8 of the other. */
INLINE __m256i
sums_pair(__m256i upper, __m256i lower)
{
    return _mm256_add_epi32(_mm256_madd_epi16(upper, _mm256_set1_epi16(1 << 8)),
                            _mm256_madd_epi16(lower, _mm256_set1_epi16(1)));
}

/* What the upper and the lower sum of a block's bytes are more than those of
 * its elements, taken away: what both begin with. */
INLINE void
begins_find(const int8_t *digits, float *to)
{
    const __m256i all = _mm256_set1_epi8(ELEMENT_OFF);
    __m256i sum[DIGITS];

    for (int d = 0; d < DIGITS; d++) {
        sum[d] = _mm256_setzero_si256();
        for (int p = 0; p < PLANES; p++, digits += VEC_BYTES)
            sum[d] = _mm256_add_epi16(sum[d],
                                      _mm256_maddubs_epi16(all, load(digits)));
    }
    for (int h = 0; h < 2; h++)
        _mm256_storeu_si256(
            (__m256i *)(void *)(to + h * N_LANES),
            _mm256_sub_epi32(_mm256_setzero_si256(),
                             sums_pair(sum[2 * h], sum[2 * h + 1])));
}

static bool
arrange(mr_quant_kind kind, int group, int64_t cols, const float *x, float *to)
{
    const __m256i groups = lane_groups(group);
    int32_t integers[CODES];

    if (kind != MR_QUANT_E2M1)
        return false;
    for (int64_t k = 0; k < cols; k += CODES, x += CODES, to += BLOCK_FLOATS) {
        int64_t n = cols - k < CODES ? cols - k : CODES;
        int8_t *digits = (int8_t *)to;
        float unit[N_LANES] = {0.0F};

        memset(integers + n, 0, (size_t)(CODES - n) * sizeof *integers);
        for (int64_t i = 0; i < n; i += group) {
            if (!group_integers(x + i, group, integers + i, unit + i / group))
                return false;
            unit[i / group] *= 0.5F;
        }
        for (int l = 0; l < N_LANES; l++) {
            const int32_t *from = integers + lane_begin(l);

            word_digits(from, digits + 4 * l);
            word_digits(from + 8, digits + 4 * l + 2 * VEC_BYTES);
        }
        v_store(to + UNITS_AT,
                (R)_mm256_permutevar8x32_ps(_mm256_loadu_ps(unit), groups));
        begins_find(digits, to + UNITS_AT + N_LANES);
    }
    return true;
}

/* sum[i * nr + r] += row i of x times row r of w. */
INLINE void
block_meets(const uint8_t *from, int64_t step, const float *scale,
            int64_t scale_step, __m256i groups, const float *const *x, R *sum,
            const int m, const int nr)
{
    const __m256i low = _mm256_set1_epi8(15), table = load(elements);
    __m256i cell[TOGETHER][2], part[TOGETHER][DIGITS];

#pragma GCC unroll 2
    for (int r = 0; r < nr; r++, from += step) {
        __m256 a = (__m256)load(from), b = (__m256)load(from + VEC_BYTES);

        /* so that a lane has codes of one group in both */
        cell[r][0] = (__m256i)_mm256_shuffle_ps(a, b, 0x88);
        cell[r][1] = (__m256i)_mm256_shuffle_ps(a, b, 0xDD);
    }
#pragma GCC unroll 4
    for (int p = 0; p < PLANES; p++) {
        __m256i c[TOGETHER];

#pragma GCC unroll 2
        for (int r = 0; r < nr; r++) {
            c[r] = cell[r][p / 2];
            c[r] = p % 2 ? _mm256_srli_epi16(c[r], 4) : c[r];
            c[r] = _mm256_shuffle_epi8(table, _mm256_and_si256(c[r], low));
        }
#pragma GCC unroll 8
        for (int k = 0; k < DIGITS * m; k++) {
            const int d = k / m, i = k % m;
            __m256i q = load((const int8_t *)x[i] + d * CODES + p * VEC_BYTES);

            if (nr > 1) /* once, not in each product */
                __asm__("" : "+x"(q));
#pragma GCC unroll 2
            for (int r = 0; r < nr; r++) {
                __m256i *to = &part[i * nr + r][d];
                __m256i y = _mm256_maddubs_epi16(c[r], q);

                *to = p == 0 ? y : _mm256_add_epi16(*to, y);
                /* in this order: else products wait in memory for their sum */
                __asm__("" : "+x"(*to));
            }
        }
    }
#pragma GCC unroll 2
    for (int c = 0; c < m * nr; c++) {
        const float *at = x[c / nr] + UNITS_AT;
        __m256i upper = _mm256_add_epi32(sums_pair(part[c][0], part[c][1]),
                                         load(at + N_LANES));
        __m256i lower = _mm256_add_epi32(sums_pair(part[c][2], part[c][3]),
                                         load(at + 2 * N_LANES));
        R t = multiply_add((R)_mm256_cvtepi32_ps(upper), v_set(0x1p16F),
                           (R)_mm256_cvtepi32_ps(lower));
        R s = (R)_mm256_permutevar8x32_ps(
            _mm256_loadu_ps(scale + c % nr * scale_step), groups);

        sum[c] = multiply_add(t * v_load(at), s, sum[c]);
    }
}

INLINE void
rows_meet(const mr_quant_span *s, int64_t row, const float *const *x,
          float (*lanes)[16], const int m, const int nr)
{
    const uint8_t *from = s->from + row * s->row_bytes;
    const float *scale = s->scale + row * s->row_groups, *at[TOGETHER];
    const __m256i groups = lane_groups(s->group);
    int64_t ahead = bytes_ahead(s->row_bytes, nr, AHEAD), k = 0;
    R sum[TOGETHER];

    for (int i = 0; i < m; i++)
        at[i] = x[i];
    for (int c = 0; c < m * nr; c++)
        sum[c] = (R){0};
    for (; k + CODES <= s->n; k += CODES) {
        for (int r = 0; r < nr; r++)
            bring(from + r * s->row_bytes, ahead);
        block_meets(from, s->row_bytes, scale, s->row_groups, groups, at, sum,
                    m, nr);
        from += BYTES;
        scale += CODES / s->group;
        for (int i = 0; i < m; i++)
            at[i] += BLOCK_FLOATS;
    }
    if (k < s->n) { /* from copies: beyond is another row, or nothing */
        uint8_t last[TOGETHER][BYTES] = {{0}};
        float scales[TOGETHER][N_LANES] = {{0.0F}};

        for (int r = 0; r < nr; r++) {
            memcpy(last[r], from + r * s->row_bytes, (size_t)(s->n - k) / 2);
            memcpy(scales[r], scale + r * s->row_groups,
                   (size_t)((s->n - k) / s->group) * sizeof **scales);
        }
        block_meets(last[0], sizeof *last, scales[0], N_LANES, groups, at, sum,
                    m, nr);
    }
    for (int c = 0; c < m * nr; c++) {
        float *to = lanes[c / nr * MR_QUANT_TOGETHER + row + c % nr];

        v_store(to, v_load(to) + sum[c]);
    }
}

static void
meet_e2m1_1(const mr_quant_span *s, int rows, const float *const *x,
            const float *const *x_sums, float (*lanes)[16])
{
    int r = 0;

    (void)x_sums; /* elements have no bias */
    for (; r + TOGETHER <= rows; r += TOGETHER)
        rows_meet(s, r, x, lanes, 1, TOGETHER);
    for (; r < rows; r++)
        rows_meet(s, r, x, lanes, 1, 1);
}

static void
meet_e2m1_2(const mr_quant_span *s, int rows, const float *const *x,
            const float *const *x_sums, float (*lanes)[16])
{
    (void)x_sums;
    for (int r = 0; r < rows; r++)
        rows_meet(s, r, x, lanes, 2, 1);
}

const mr_quant_digits MR_TIER_SYM(mr__quant_digits) = {
    .codes = {[MR_QUANT_E2M1] = CODES},
    .floats = {[MR_QUANT_E2M1] = BLOCK_FLOATS},
    .arrange = arrange,
    .dot = {[MR_QUANT_E2M1] = {meet_e2m1_1, meet_e2m1_2}},
};

#else

const mr_quant_digits MR_TIER_SYM(mr__quant_digits) = {.arrange = NULL};

#endif
