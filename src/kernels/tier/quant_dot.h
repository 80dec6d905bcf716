/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_dot.h -- products of few rows with packed rows.
 *
 * A cell is 16 lanes of as many codes as fit 32 bits (1, 2, 4, 8 bits), 24 (3,
 * 6) or 20 (5) of the row's stream; x is arranged to suit.  Included once for
 * the tier, and again with PICKS_BYTES for processors that make lanes of less
 * than a word faster: the same bits.  PLACED: codes stay where they are in the
 * lane, and x was divided by that power of two; BITS: and are floats as such.
 */

/* Names of this time. */
#define short_lanes NAMED(short_lanes)
#define cells_meet  NAMED(cells_meet)
#define cells_at    NAMED(cells_at)
#define cell_read   NAMED(cell_read)
#define cell_copy   NAMED(cell_copy)
#define cells       NAMED(cells)
#define walk        NAMED(walk)
#define whole_lanes NAMED(whole_lanes)
#define dot_rows    NAMED(dot_rows)
#define dot_any     NAMED(dot_any)
#define dot_nan     NAMED(dot_nan)
#define rows_nan    NAMED(rows_nan)
#define dot         NAMED(dot)

#if MR_TIER_ID == MR_TIER_AVX512
/* Where in the 64 bytes from a cell's on its lanes begin: lanes of 24 bits, of
 * 20; then by quarters, after a shuffle of words. */
#ifdef PICKS_BYTES
#define LANE(l, b) ((l) * (b) / 8), ((l) * (b) / 8 + 1), ((l) * (b) / 8 + 2), 0
#define LANES(b)                                                               \
    {                                                                          \
        LANE(0, b), LANE(1, b), LANE(2, b), LANE(3, b), LANE(4, b),            \
            LANE(5, b), LANE(6, b), LANE(7, b), LANE(8, b), LANE(9, b),        \
            LANE(10, b), LANE(11, b), LANE(12, b), LANE(13, b), LANE(14, b),   \
            LANE(15, b)                                                        \
    }
static const uint8_t lane_bytes[2][64] = {LANES(24), LANES(20)};
#else
static const int32_t quarter_words[2][16] = {
    {0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12},
    {0, 1, 2, 3, 2, 3, 4, 5, 5, 6, 7, 8, 7, 8, 9, 10}};
#define LANE(at, l, b)                                                         \
    ((at) + (l) * (b) / 8), ((at) + (l) * (b) / 8 + 1),                        \
        ((at) + (l) * (b) / 8 + 2), -128
#define QUARTER(at, b)                                                         \
    LANE(at, 0, b), LANE(at, 1, b), LANE(at, 2, b), LANE(at, 3, b)
static const int8_t quarter_bytes[2][64] = {
    {QUARTER(0, 24), QUARTER(0, 24), QUARTER(0, 24), QUARTER(0, 24)},
    {QUARTER(0, 20), QUARTER(2, 20), QUARTER(0, 20), QUARTER(2, 20)}};
#endif
#elif MR_TIER_ID != MR_TIER_BASELINE
#define LANE(l, b)                                                             \
    ((l) * (b) / 8), ((l) * (b) / 8 + 1), ((l) * (b) / 8 + 2), -128
#define QUARTER(b) LANE(0, b), LANE(1, b), LANE(2, b), LANE(3, b)
static const int8_t quarter_bytes[2][32] = {{QUARTER(24), QUARTER(24)},
                                            {QUARTER(20), QUARTER(20)}};
#endif
#ifndef PICKS_BYTES
/* First bits of lanes of 20 in their bytes. */
static const uint32_t lane_first[16] = {0, 4, 0, 4, 0, 4, 0, 4,
                                        0, 4, 0, 4, 0, 4, 0, 4};
#endif

/* Bytes that short_lanes may read from a cell's first on. */
#define CELL_READ 64

/* N_LANES lanes of 24 bits or 20 that start at a byte; above the 24 bits is
 * nothing, above the 20 anything. */
TARGET INLINE U
short_lanes(const uint8_t *from, const int bits, const form how)
{
#if MR_TIER_ID == MR_TIER_AVX512
    __m512i x = _mm512_loadu_si512(from);

#ifdef PICKS_BYTES
    x = _mm512_maskz_permutexvar_epi8(
        0x7777777777777777, _mm512_loadu_si512(lane_bytes[bits == 20]), x);
#else
    x = _mm512_permutexvar_epi32(_mm512_loadu_si512(quarter_words[bits == 20]),
                                 x);
    x = _mm512_shuffle_epi8(x, _mm512_loadu_si512(quarter_bytes[bits == 20]));
#endif
#elif MR_TIER_ID == MR_TIER_AVX2
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)from);
    __m128i high =
        _mm_loadu_si128((const __m128i *)(const void *)(from + bits / 2));
    __m256i x = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);

    x = _mm256_shuffle_epi8(
        x, _mm256_loadu_si256(
               (const __m256i *)(const void *)quarter_bytes[bits == 20]));
#elif MR_TIER_ID == MR_TIER_NEON
    uint8x16_t x = vqtbl1q_u8(
        vld1q_u8(from), vld1q_u8((const uint8_t *)quarter_bytes[bits == 20]));
#else
    U x;

    for (int i = 0; i < N_LANES; i++) {
        uint32_t word;

        memcpy(&word, from + i * bits / 8, sizeof word);
        x[i] = word & 0xffffff;
    }
#endif
    return bits == 20 && how == PLAIN ? (U)x >> u_load(lane_first) : (U)x;
}

#ifdef PICKS_BYTES
/* The four E4M3 codes of each lane as bfloat16: to[0] has the first in its low
 * half and the third in its high one, to[1] the others. */
TARGET INLINE void
e4m3_halves(U w, U *to)
{
    const __m512i mask = _mm512_set1_epi32(0x00FF00FF);
    __m512i low =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(e4m3_low), (__m512i)w,
                                 _mm512_loadu_si512(e4m3_low + 64));
    __m512i high =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(e4m3_high), (__m512i)w,
                                 _mm512_loadu_si512(e4m3_high + 64));

    /* the sign; then by mask: the first where it is set, else the second */
    high = _mm512_ternarylogic_epi32(high, (__m512i)w,
                                     _mm512_set1_epi8((char)0x80), 0xF8);
    to[0] = (U)_mm512_ternarylogic_epi32(low, _mm512_slli_epi32(high, 8), mask,
                                         0xE4);
    to[1] = (U)_mm512_ternarylogic_epi32(_mm512_srli_epi32(low, 8), high, mask,
                                         0xE4);
}

/* Is some code NaN or of the least exponent?  By a product of matrices of bits
 * those come last: where neighbours among the four bits of the exponent are
 * equal, then where it is 0, then by the mantissa. */
TARGET INLINE bool
e4m3_special(const U *w, const int nr)
{
    const __m512i matrix = _mm512_set1_epi64(0x0001020440183060);
    __m512i most = _mm512_setzero_si512();

#pragma GCC unroll 4
    for (int r = 0; r < nr; r++)
        most = _mm512_max_epu8(
            most, _mm512_gf2p8affine_epi64_epi8((__m512i)w[r], matrix, 0xF0));
    return _mm512_cmpge_epu8_mask(most, _mm512_set1_epi8((char)0xEE)) != 0;
}

/* e4m3_halves of codes that are not special: their bits and what 120 more in
 * the exponent makes of them, without a table (vpermi2b has a port twice). */
TARGET INLINE void
e4m3_normal(U w, U *to)
{
    const __m512i low = _mm512_set1_epi64(0x0000000001020408);
    const __m512i high = _mm512_set1_epi64(0x1020404040404080);
    const __m512i order = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    __m512i x = _mm512_shuffle_epi8((__m512i)w, order);
    __m512i lows = _mm512_gf2p8affine_epi64_epi8(x, low, 0);
    __m512i highs = _mm512_gf2p8affine_epi64_epi8(x, high, 0x3C);

    to[0] = (U)_mm512_unpacklo_epi8(lows, highs);
    to[1] = (U)_mm512_unpackhi_epi8(lows, highs);
}

/* Halves of a cell's codes of some rows; `tests` NULL: all looked up. */
TARGET INLINE void
e4m3_all(const U *w, U (*to)[2], int *tests, const int nr)
{
    if (!tests || __builtin_expect(e4m3_special(w, nr), 0)) {
        if (tests)
            --*tests;
#pragma GCC unroll 4
        for (int r = 0; r < nr; r++)
            e4m3_halves(w[r], to[r]);
        return;
    }
#pragma GCC unroll 4
    for (int r = 0; r < nr; r++)
        e4m3_normal(w[r], to[r]);
}
#endif

#if defined(PICKS_BYTES) || defined(E4M3_HALVES)
/* e4m3_halves times 2^-120, NaN taken for 480: the bits of each byte moved to
 * theirs.  Numbers below 2^-6 are no normal ones there. */
TARGET INLINE void
e4m3_clean(U w, U *to)
{
#if MR_TIER_ID == MR_TIER_AVX512
    const __m512i mask = _mm512_set1_epi16((short)0x87F0);
    __m512i low = _mm512_slli_epi16((__m512i)w, 8);

    to[0] = (U)_mm512_and_si512(_mm512_srai_epi16(low, 4), mask);
    to[1] = (U)_mm512_and_si512(_mm512_srai_epi16((__m512i)w, 4), mask);
#else
    const __m256i mask = _mm256_set1_epi16((short)0x87F0);
    __m256i low = _mm256_slli_epi16((__m256i)w, 8);

    to[0] = (U)_mm256_and_si256(_mm256_srai_epi16(low, 4), mask);
    to[1] = (U)_mm256_and_si256(_mm256_srai_epi16((__m256i)w, 4), mask);
#endif
}

INLINE R
e4m3_at(const U *halves, const int j, const mr_quant_kind kind, const form how)
{
    R q = (R)(j < 2 ? halves[j] << 16 : halves[j - 2] & 0xFFFF0000);

    /* x has been arranged for clean ones */
    return kind == MR_QUANT_E4M3 && how == BITS ? q * C(0x1p-120F) : q;
}
#endif

/* Vector v of some cells next to each other, x from number `at` on.  Row i of x
 * and row r of w meet in sum i * nr + r. */
TARGET INLINE void
cells_meet(U (*w)[CELLS], R (*scale)[CELLS], const float *const *x, int64_t at,
           R (*sum)[VECTORS], int *tests, const mr_quant_kind kind, const int m,
           const int nr, const form how, const int n_cells, const int v)
{
    const int count = kind_count(kind);
    R t[MOST_SUMS * CELLS];
#ifdef E4M3_HALVES
    const bool e4m3 = how == BITS && kind == CLEAN;
    U halves[MOST_ROWS][2];

#pragma GCC unroll 4
    for (int r = 0; e4m3 && r < nr; r++)
        e4m3_clean(w[r][v], halves[r]);
#endif
#ifdef PICKS_BYTES
    const bool e4m3 = kind == MR_QUANT_E4M3 || kind == CLEAN;
    U cell[MOST_ROWS], halves[MOST_ROWS][2];

#pragma GCC unroll 4
    for (int r = 0; e4m3 && r < nr; r++) {
        cell[r] = w[r][v];
        if (kind == CLEAN)
            e4m3_clean(cell[r], halves[r]);
    }
    if (kind == MR_QUANT_E4M3)
        e4m3_all(cell, halves, tests, nr);
#endif
    (void)tests;

#pragma GCC unroll 8
    for (int c = 0; c < m * nr * n_cells; c++)
        t[c] = (R){0};
#pragma GCC unroll 32
    for (int j = 0; j < count; j++)
#pragma GCC unroll 2
        for (int c = 0; c < n_cells; c++) {
            R q[MOST_ROWS];

#pragma GCC unroll 4
            for (int r = 0; r < nr; r++)
#if defined(PICKS_BYTES) || defined(E4M3_HALVES)
                q[r] = e4m3 ? e4m3_at(halves[r], j, kind, how)
                            : number_at(w[r][c + v], j, kind, how);
#else
                q[r] = number_at(w[r][c + v], j, kind, how);
#endif
#pragma GCC unroll 4
            for (int i = 0; i < m; i++) {
                R y = v_load(x[i] + at + (c * count + j) * 16 + v * N_LANES);

#if HAS_BITS
                if (nr > 1) /* once, not in each multiply-add */
                    __asm__("" : "+v"(y));
#endif
#pragma GCC unroll 4
                for (int r = 0; r < nr; r++) {
                    R *to = &t[(i * nr + r) * n_cells + c];

                    *to = multiply_add(y, q[r], *to);
                }
            }
        }
#pragma GCC unroll 8
    for (int c = 0; c < m * nr * n_cells; c++)
        sum[c / n_cells][v] =
            multiply_add(t[c], scale[c / n_cells % nr][c % n_cells + v],
                         sum[c / n_cells][v]);
}

/* Vector v of the lanes of a cell and the scales of its groups, each of 1 <<
 * shift lanes; one: of all lanes of a vector. */
TARGET INLINE void
cell_read(const uint8_t *from, const float *scales, int shift, U *w, R *scale,
          const mr_quant_kind kind, const form how, const bool one, const int v)
{
    const int bits = lane_bits(kind);
    const float *own = scales + (v * N_LANES >> shift);
    M index;

    if (bits == 32)
        *w = u_load(from + v * VEC_BYTES);
    else
        *w = short_lanes(from + v * N_LANES * bits / 8, bits, how);
    memcpy(&index, lane_number, sizeof index);
    *scale = one ? v_set(*own) : pick_scales(own, (U)(index >> shift));
}

/* All of a cell at lane `at` of n, from copies: beyond its end is another row,
 * or nothing that may be read. */
TARGET INLINE void
cell_copy(const uint8_t *from, const float *scales, int64_t lanes,
          int64_t groups, int shift, U *w, R *scale, const mr_quant_kind kind,
          const form how)
{
    const int bytes = 2 * lane_bits(kind), most = shift >= 4 ? 1 : 16 >> shift;
    uint8_t last[CELL_READ] = {0};
    float last_scales[32] = {0.0F};

    memcpy(last, from, (size_t)(lanes < 16 ? lanes * bytes / 16 : bytes));
    memcpy(last_scales, scales,
           (size_t)(groups < most ? groups : most) * sizeof *scales);
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++)
        cell_read(last, last_scales, shift, w + v, scale + v, kind, how, false,
                  v);
}

/* Lanes of whole cells that may be read where they are, of row `row`. */
INLINE int64_t
whole_lanes(const mr_quant_span *s, int64_t row, const mr_quant_kind kind)
{
    const int bytes = 2 * lane_bits(kind);
    int64_t cells = s->n / kind_count(kind) / 16;
    int64_t there = s->end - (s->from + row * s->row_bytes);
    int64_t most = there < CELL_READ ? 0 : (there - CELL_READ) / bytes + 1;

    return 16 * (cells < most ? cells : most);
}

/* Where some rows are: each `step` behind the other, as are their scales. */
typedef struct walk {
    const uint8_t *from;
    const float *scale;
    int64_t step, scale_step, ahead;
    int shift;
} walk;

/* n_cells cells of nr rows, the first at lane l.  Steps are hidden from the
 * compiler, which else keeps a register for each row, and has not as many. */
TARGET INLINE void
cells_at(const walk *at, int64_t l, const float *const *x, R (*sum)[VECTORS],
         U *nans, int *tests, const mr_quant_kind kind, const int m,
         const int nr, const form how, const bool one, const int n_cells)
{
    const int count = kind_count(kind), bytes = 2 * lane_bits(kind);
    const uint8_t *row = at->from + l / 16 * bytes;
    const float *scales = at->scale + (l >> at->shift);
    int64_t step = at->step, scale_step = at->scale_step;
    R scale[MOST_ROWS][CELLS];
    U w[MOST_ROWS][CELLS];

    __asm__("" : "+r"(step), "+r"(scale_step));
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        const uint8_t *from = row;
        const float *own = scales;

#pragma GCC unroll 4
        for (int r = 0; r < nr; r++, from += step, own += scale_step)
#pragma GCC unroll 2
            for (int c = 0; c < n_cells; c++) {
                int64_t g = ((l + 16 * c) >> at->shift) - (l >> at->shift);

                if (v == 0)
                    bring(from + c * bytes, at->ahead);
                cell_read(from + c * bytes, own + g, at->shift, w[r] + c + v,
                          scale[r] + c + v, kind, how, one, v);
                *nans = kind == CLEAN ? e4m3_nans(*nans, w[r][c + v]) : *nans;
            }
        cells_meet(w, scale, x, l * count, sum, tests, kind, m, nr, how,
                   n_cells, v);
    }
}

/* Cells of lanes [0, stop).  Two at once have twice as many chains of
 * multiply-adds: faster with 5 bits (17 %), not with other integers.  Where
 * special E4M3 codes are many, tests only cost: after some that failed all are
 * looked up. */
TARGET INLINE void
cells(const walk *at, int64_t stop, const float *const *x, R (*sum)[VECTORS],
      U *nans, const mr_quant_kind kind, const int m, const int nr,
      const form how, const bool one)
{
    const int most =
        m == 1 && how == BITS && kind == MR_QUANT_5 ? CELLS / VECTORS : 1;
    int tests = 4; /* that may fail */
    int64_t l = 0;

    for (; kind == MR_QUANT_E4M3 && tests > 0 && l < stop; l += 16)
        cells_at(at, l, x, sum, nans, &tests, kind, m, nr, how, one, 1);
    for (; l + 16 * most <= stop; l += 16 * most)
        cells_at(at, l, x, sum, nans, NULL, kind, m, nr, how, one, most);
    for (; most > 1 && l < stop; l += 16)
        cells_at(at, l, x, sum, nans, NULL, kind, m, nr, how, one, 1);
}

/* Rows [row, row + nr) of w, one, two or four.  False, and nothing is added,
 * when what was taken for CLEAN is not. */
TARGET INLINE bool
dot_rows(const mr_quant_span *s, int64_t row, const float *const *x,
         const float *const *x_sums, float (*lanes)[16],
         const mr_quant_kind kind, const int m, const int nr, const form how)
{
    const int count = kind_count(kind), bytes = 2 * lane_bits(kind);
    int64_t n = s->n / count, stop = whole_lanes(s, row + nr - 1, kind);
    R sum[MOST_SUMS][VECTORS], scale[MOST_ROWS][CELLS];
    U w[MOST_ROWS][CELLS], nans = {0};
    walk at = {.from = s->from + row * s->row_bytes,
               .scale = s->scale + row * s->row_groups,
               .step = s->row_bytes,
               .scale_step = s->row_groups,
               .ahead = bytes_ahead(s->row_bytes, nr, AHEAD),
               .shift = __builtin_ctz((unsigned)(s->group / count))};

    for (int c = 0; c < m * nr; c++)
        for (int v = 0; v < VECTORS; v++)
            sum[c][v] = v_load(
                lanes[c / nr * MR_QUANT_TOGETHER + row + c % nr] + v * N_LANES);
    if (N_LANES >> at.shift <= 1)
        cells(&at, stop, x, sum, &nans, kind, m, nr, how, true);
    else
        cells(&at, stop, x, sum, &nans, kind, m, nr, how, false);
    for (int64_t l = stop; l < n; l += 16) {
        int64_t g = l >> at.shift;

        for (int r = 0; r < nr; r++) {
            cell_copy(at.from + r * at.step + l / 16 * bytes,
                      at.scale + r * at.scale_step + g, n - l, s->n_groups - g,
                      at.shift, w[r], scale[r], kind, how);
            for (int v = 0; v < VECTORS; v++)
                nans = kind == CLEAN ? e4m3_nans(nans, w[r][v]) : nans;
        }
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            cells_meet(w, scale, x, l * count, sum, NULL, kind, m, nr, how, 1,
                       v);
    }
    if (kind == CLEAN && e4m3_has_nan(nans))
        return false;
    for (int c = 0; c < m * nr; c++) {
        float *to = lanes[c / nr * MR_QUANT_TOGETHER + row + c % nr];

        if (s->bias)
            add_biases(s, row + c % nr, x_sums[c / nr], sum[c]);
        for (int v = 0; v < VECTORS; v++)
            v_store(to + v * N_LANES, sum[c][v]);
    }
    return true;
}

/* A row that may hold NaN.  Apart: what it keeps in memory is not to end there
 * where there is none. */
TARGET INLINE void
rows_nan(const mr_quant_span *s, int64_t row, const float *const *x,
         const float *const *x_sums, float (*lanes)[16], int m, const form how)
{
    if (m == 1)
        dot_rows(s, row, x, x_sums, lanes, MR_QUANT_E4M3, 1, 1, how);
    else if (m == 2)
        dot_rows(s, row, x, x_sums, lanes, MR_QUANT_E4M3, 2, 1, how);
    else
        dot_rows(s, row, x, x_sums, lanes, MR_QUANT_E4M3, 4, 1, how);
}

TARGET static __attribute__((noinline)) void
dot_nan(const mr_quant_span *s, int64_t row, const float *const *x,
        const float *const *x_sums, float (*lanes)[16], int m, form how)
{
#ifdef OF_BITS
    if (how == BITS)
        rows_nan(s, row, x, x_sums, lanes, m, BITS);
#endif
#ifndef PICKS_BYTES
    if (how == PLAIN)
        rows_nan(s, row, x, x_sums, lanes, m, PLAIN);
#endif
}

/* The same, with or without NaN (of CLEAN). */
TARGET INLINE void
dot_any(const mr_quant_span *s, int64_t row, const float *const *x,
        const float *const *x_sums, float (*lanes)[16],
        const mr_quant_kind kind, const int m, const int nr, const form how)
{
    if (!dot_rows(s, row, x, x_sums, lanes, kind, m, nr, how))
        for (int r = 0; r < nr; r++)
            dot_nan(s, row + r, x, x_sums, lanes, m, how);
}

/* All rows: as many at a time as there are registers for their sums, so that
 * numbers of x are read once for them and no chain of multiply-adds waits for
 * itself. */
TARGET INLINE void
dot(const mr_quant_span *s, int rows, const float *const *x,
    const float *const *x_sums, float (*lanes)[16], const mr_quant_kind kind,
    const int m, const form how)
{
    const int most = m == 1 ? MOST_ROWS : MOST_SUMS / m < 2 ? 1 : 2;
    int r = 0;

    for (; r + most <= rows; r += most)
        dot_any(s, r, x, x_sums, lanes, kind, m, most, how);
    for (; most > 2 && r + 2 <= rows; r += 2)
        dot_any(s, r, x, x_sums, lanes, kind, m, 2, how);
    for (; r < rows; r++)
        dot_any(s, r, x, x_sums, lanes, kind, m, 1, how);
}

#define DOT(name, kind, how, m)                                                \
    TARGET static void name(const mr_quant_span *s, int rows,                  \
                            const float *const *x, const float *const *x_sums, \
                            float(*lanes)[16])                                 \
    {                                                                          \
        dot(s, rows, x, x_sums, lanes, kind, m, how);                          \
    }
#define DOTS(name, kind, how)                                                  \
    DOT(name##_1, kind, how, 1)                                                \
    DOT(name##_2, kind, how, 2)                                                \
    DOT(name##_4, kind, how, 4)
#ifdef PICKS_BYTES
DOTS(in_place_3, MR_QUANT_3, PLACED)
DOTS(in_place_5, MR_QUANT_5, PLACED)
DOTS(in_place_6, MR_QUANT_6, PLACED)
DOTS(in_place_e4m3, MR_QUANT_E4M3, PLACED)
#endif
#ifdef OF_BITS
#ifdef PICKS_BYTES
DOTS(bits_1, MR_QUANT_1, BITS)
#endif
DOTS(bits_2, MR_QUANT_2, BITS)
DOTS(bits_3, MR_QUANT_3, BITS)
DOTS(bits_4, MR_QUANT_4, BITS)
DOTS(bits_5, MR_QUANT_5, BITS)
DOTS(bits_6, MR_QUANT_6, BITS)
DOTS(bits_8, MR_QUANT_8, BITS)
DOTS(bits_e2m1, MR_QUANT_E2M1, BITS)
DOTS(bits_e4m3, CLEAN, BITS)
#endif
#ifndef PICKS_BYTES
DOTS(dot_1, MR_QUANT_1, PLAIN)
DOTS(dot_2, MR_QUANT_2, PLAIN)
DOTS(dot_3, MR_QUANT_3, PLAIN)
DOTS(dot_4, MR_QUANT_4, PLAIN)
DOTS(dot_5, MR_QUANT_5, PLAIN)
DOTS(dot_6, MR_QUANT_6, PLAIN)
DOTS(dot_8, MR_QUANT_8, PLAIN)
DOTS(dot_e2m1, MR_QUANT_E2M1, PLAIN)
DOTS(dot_e4m3, CLEAN, PLAIN)
#if MR_TIER_ID == MR_TIER_AVX512
DOTS(in_place_1, MR_QUANT_1, PLACED)
DOTS(in_place_2, MR_QUANT_2, PLACED)
DOTS(in_place_4, MR_QUANT_4, PLACED)
DOTS(in_place_8, MR_QUANT_8, PLACED)
#endif
#endif
#undef short_lanes
#undef cells_meet
#undef cells_at
#undef cell_read
#undef cell_copy
#undef cells
#undef walk
#undef whole_lanes
#undef dot_rows
#undef dot_any
#undef dot_nan
#undef rows_nan
#undef dot
#undef DOT
#undef DOTS
#undef LANE
#undef LANES
#undef QUARTER
