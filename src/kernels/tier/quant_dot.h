/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_dot.h -- products of few rows with packed rows.
 *
 * A cell is 16 lanes of as many codes as fit 32 bits (1, 2, 4, 8 bits), 24 (3,
 * 6) or 20 (5) of the row's stream; x is arranged to suit.  Included once for
 * the tier, and again with PICKS_BYTES for processors that make lanes of less
 * than a word faster: the same bits.  in_place: codes stay where they are in
 * the lane, and x was divided by that power of two.
 */

/* Names of this time. */
#define short_lanes NAMED(short_lanes)
#define cell        NAMED(cell)
#define cell_read   NAMED(cell_read)
#define cell_copy   NAMED(cell_copy)
#define whole_lanes NAMED(whole_lanes)
#define dot_rows    NAMED(dot_rows)
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
short_lanes(const uint8_t *from, const int bits, const bool in_place)
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
    return bits == 20 && !in_place ? (U)x >> u_load(lane_first) : (U)x;
}

/* A cell; x from number `at` on.  Row i of x and row r of w meet in sum i * nr
 * + r. */
INLINE void
cell(U (*w)[VECTORS], R (*scale)[VECTORS], const float *const *x, int64_t at,
     R (*sum)[VECTORS], const mr_quant_kind kind, const int m, const int nr,
     const bool in_place)
{
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        R t[MR_QUANT_ROWS];

#pragma GCC unroll 4
        for (int c = 0; c < m * nr; c++)
            t[c] = (R){0};
#pragma GCC unroll 32
        for (int j = 0; j < kind_count(kind); j++) {
            R q[2];

#pragma GCC unroll 2
            for (int r = 0; r < nr; r++)
                q[r] = number_at(w[r][v], j, kind, in_place);
#pragma GCC unroll 4
            for (int i = 0; i < m; i++) {
                R y = v_load(x[i] + at + j * 16 + v * N_LANES);

#if MR_TIER_ID == MR_TIER_AVX512
                if (nr > 1) /* once, not in each multiply-add */
                    __asm__("" : "+v"(y));
#endif
#pragma GCC unroll 2
                for (int r = 0; r < nr; r++)
                    t[i * nr + r] = multiply_add(y, q[r], t[i * nr + r]);
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < m * nr; c++)
            sum[c][v] = multiply_add(t[c], scale[c % nr][v], sum[c][v]);
    }
}

/* The lanes of a cell and the scales of its groups, each of 1 << shift lanes.
 */
TARGET INLINE void
cell_read(const uint8_t *from, const float *scales, int shift, U *w, R *scale,
          const mr_quant_kind kind, const bool in_place)
{
    const int bits = lane_bits(kind);

#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        M index;

        if (bits == 32)
            w[v] = u_load(from + v * VEC_BYTES);
        else
            w[v] = short_lanes(from + v * N_LANES * bits / 8, bits, in_place);
        memcpy(&index, lane_number, sizeof index);
        scale[v] = shift >= 4
                       ? v_set(*scales)
                       : v_pick(scales, (U)((index + v * N_LANES) >> shift));
    }
}

/* The same of a cell at lane `at` of n, from copies: beyond its end is another
 * row, or nothing that may be read. */
TARGET INLINE void
cell_copy(const uint8_t *from, const float *scales, int64_t lanes,
          int64_t groups, int shift, U *w, R *scale, const mr_quant_kind kind,
          const bool in_place)
{
    const int bytes = 2 * lane_bits(kind), most = shift >= 4 ? 1 : 16 >> shift;
    uint8_t last[CELL_READ] = {0};
    float last_scales[16] = {0.0F};

    memcpy(last, from, (size_t)(lanes < 16 ? lanes * bytes / 16 : bytes));
    memcpy(last_scales, scales,
           (size_t)(groups < most ? groups : most) * sizeof *scales);
    cell_read(last, last_scales, shift, w, scale, kind, in_place);
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

/* Rows [row, row + nr) of w, one or two.  False, and nothing is added, when
 * what was taken for CLEAN is not. */
TARGET INLINE bool
dot_rows(const mr_quant_span *s, int64_t row, const float *const *x,
         const float *const *x_sums, float (*lanes)[16],
         const mr_quant_kind kind, const int m, const int nr,
         const bool in_place)
{
    const int count = kind_count(kind), bytes = 2 * lane_bits(kind);
    int shift = __builtin_ctz((unsigned)(s->group / count));
    int64_t n = s->n / count, at = 0;
    int64_t stop = whole_lanes(s, row + nr - 1, kind);
    const uint8_t *from[2] = {s->from + row * s->row_bytes,
                              s->from + (row + nr - 1) * s->row_bytes};
    const float *scales[2] = {s->scale + row * s->row_groups,
                              s->scale + (row + nr - 1) * s->row_groups};
    R sum[MR_QUANT_ROWS][VECTORS], scale[2][VECTORS];
    U w[2][VECTORS], nans = {0};
    int64_t ahead = bytes_ahead(s->row_bytes, nr);

    for (int c = 0; c < m * nr; c++)
        for (int v = 0; v < VECTORS; v++)
            sum[c][v] = v_load(
                lanes[c / nr * MR_QUANT_TOGETHER + row + c % nr] + v * N_LANES);
    for (; at < stop; at += 16) {
        int64_t g = at >> shift;

#pragma GCC unroll 2
        for (int r = 0; r < nr; r++) {
            bring(from[r], ahead);
            cell_read(from[r], scales[r] + g, shift, w[r], scale[r], kind,
                      in_place);
            for (int v = 0; v < VECTORS; v++)
                nans |= kind == CLEAN ? e4m3_nans(w[r][v]) : nans;
            from[r] += bytes;
        }
        cell(w, scale, x, at * count, sum, kind, m, nr, in_place);
    }
    for (; at < n; at += 16) {
        int64_t g = at >> shift;

        for (int r = 0; r < nr; r++) {
            cell_copy(from[r], scales[r] + g, n - at, s->n_groups - g, shift,
                      w[r], scale[r], kind, in_place);
            for (int v = 0; v < VECTORS; v++)
                nans |= kind == CLEAN ? e4m3_nans(w[r][v]) : nans;
            from[r] += bytes;
        }
        cell(w, scale, x, at * count, sum, kind, m, nr, in_place);
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

/* All rows: two at a time where one of x meets them, so that a chain of
 * multiply-adds need not wait for itself. */
TARGET INLINE void
dot(const mr_quant_span *s, int rows, const float *const *x,
    const float *const *x_sums, float (*lanes)[16], const mr_quant_kind kind,
    const int m, const bool in_place)
{
    int r = 0;

    for (; m == 1 && r + 2 <= rows; r += 2)
        if (!dot_rows(s, r, x, x_sums, lanes, kind, m, 2, in_place))
            dot_rows(s, r, x, x_sums, lanes, MR_QUANT_E4M3, m, 2, false);
    for (; r < rows; r++)
        if (!dot_rows(s, r, x, x_sums, lanes, kind, m, 1, in_place))
            dot_rows(s, r, x, x_sums, lanes, MR_QUANT_E4M3, m, 1, false);
}

#define DOT(name, kind, in_place, m)                                           \
    TARGET static void name(const mr_quant_span *s, int rows,                  \
                            const float *const *x, const float *const *x_sums, \
                            float(*lanes)[16])                                 \
    {                                                                          \
        dot(s, rows, x, x_sums, lanes, kind, m, in_place);                     \
    }
#define DOTS(name, kind, in_place)                                             \
    DOT(name##_1, kind, in_place, 1)                                           \
    DOT(name##_2, kind, in_place, 2)                                           \
    DOT(name##_4, kind, in_place, 4)
#ifdef PICKS_BYTES
DOTS(in_place_3, MR_QUANT_3, true)
DOTS(in_place_5, MR_QUANT_5, true)
DOTS(in_place_6, MR_QUANT_6, true)
#else
DOTS(dot_1, MR_QUANT_1, false)
DOTS(dot_2, MR_QUANT_2, false)
DOTS(dot_3, MR_QUANT_3, false)
DOTS(dot_4, MR_QUANT_4, false)
DOTS(dot_5, MR_QUANT_5, false)
DOTS(dot_6, MR_QUANT_6, false)
DOTS(dot_8, MR_QUANT_8, false)
DOTS(dot_e2m1, MR_QUANT_E2M1, false)
DOTS(dot_e4m3, CLEAN, false)
#if MR_TIER_ID == MR_TIER_AVX512
DOTS(in_place_4, MR_QUANT_4, true)
DOTS(in_place_8, MR_QUANT_8, true)
#endif
#endif
#undef short_lanes
#undef cell
#undef cell_read
#undef cell_copy
#undef whole_lanes
#undef dot_rows
#undef dot
#undef DOT
#undef DOTS
#undef LANE
#undef LANES
#undef QUARTER
