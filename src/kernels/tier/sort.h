/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.h -- a quicksort of signed words whose steps are whole vectors.
 *
 * A segment is partitioned by its pivot in one pass: the lanes below the pivot
 * are pushed together and stored in place, the others in the spare memory,
 * which is copied back behind them.  No branch depends on a value.  What fits
 * ROWS registers is sorted there: the columns by a network, then columns
 * merged two by two by Batcher's bitonic merge (an element's number is row +
 * ROWS * lane, so most steps compare whole registers), then turned back to
 * rows.  Absent elements are the largest word.
 *
 * A right part whose pivot is again its least element, which its parent's was,
 * is parted into equal and larger ones, so that equal elements cost two passes.
 * A segment with too many bad pivots behind it is sorted by its bytes, from the
 * least: the time is n log n at worst.
 *
 * The including file has included lanes.h with signed lanes of 32 or 64 bits.
 * Without compressing stores or permutations (baseline) every segment is sorted
 * by its bytes.
 */
#ifndef MR_KERNELS_TIER_SORT_H
#define MR_KERNELS_TIER_SORT_H

#define LARGEST    ((lane)(~(unsigned_lane)0 >> 1))
#define LANE_BYTES ((int)sizeof(lane))

#if MR_TIER_ID == MR_TIER_AVX512
#define ROWS 16
#elif MR_TIER_ID == MR_TIER_AVX2
#define ROWS 8
#endif

/* ---- two registers in order ---------------------------------------------- */

INLINE R
least(R a, R b)
{
#if MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 32
    return (R)_mm512_min_epi32((__m512i)a, (__m512i)b);
#elif MR_TIER_ID == MR_TIER_AVX512
    return (R)_mm512_min_epi64((__m512i)a, (__m512i)b);
#elif MR_TIER_ID == MR_TIER_AVX2 && MR_LANE_BITS == 32
    return (R)_mm256_min_epi32((__m256i)a, (__m256i)b);
#elif MR_TIER_ID == MR_TIER_AVX2
    return (R)_mm256_castpd_si256(_mm256_blendv_pd(
        _mm256_castsi256_pd((__m256i)a), _mm256_castsi256_pd((__m256i)b),
        _mm256_castsi256_pd((__m256i)(a > b))));
#else
    return v_select(v_lt(b, a), b, a);
#endif
}

INLINE R
most(R a, R b)
{
#if MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 32
    return (R)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif MR_TIER_ID == MR_TIER_AVX512
    return (R)_mm512_max_epi64((__m512i)a, (__m512i)b);
#elif MR_TIER_ID == MR_TIER_AVX2 && MR_LANE_BITS == 32
    return (R)_mm256_max_epi32((__m256i)a, (__m256i)b);
#elif MR_TIER_ID == MR_TIER_AVX2
    return (R)_mm256_castpd_si256(_mm256_blendv_pd(
        _mm256_castsi256_pd((__m256i)b), _mm256_castsi256_pd((__m256i)a),
        _mm256_castsi256_pd((__m256i)(a > b))));
#else
    return v_select(v_lt(b, a), a, b);
#endif
}

INLINE void
in_order(R *v, int i, int j)
{
    R a = v[i], b = v[j];

    v[i] = least(a, b);
    v[j] = most(a, b);
}

/* ---- columns ------------------------------------------------------------- */

INLINE void
network_4(R *v)
{
    static const int pair[5][2] = {{0, 1}, {2, 3}, {0, 2}, {1, 3}, {1, 2}};

#pragma GCC unroll 5
    for (int i = 0; i < 5; i++)
        in_order(v, pair[i][0], pair[i][1]);
}

INLINE void
network_8(R *v)
{
    static const int pair[19][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2},
                                    {1, 3}, {4, 6}, {5, 7}, {1, 2}, {5, 6},
                                    {0, 4}, {3, 7}, {1, 5}, {2, 6}, {1, 4},
                                    {3, 6}, {2, 4}, {3, 5}, {3, 4}};

#pragma GCC unroll 19
    for (int i = 0; i < 19; i++)
        in_order(v, pair[i][0], pair[i][1]);
}

/* Green's network of 60. */
INLINE void
network_16(R *v)
{
    static const int pair[28][2] = {
        {5, 10},  {6, 9},  {3, 12}, {13, 14}, {4, 8},   {7, 11}, {1, 2},
        {1, 4},   {7, 13}, {2, 8},  {11, 14}, {2, 4},   {5, 6},  {9, 10},
        {11, 13}, {3, 8},  {7, 12}, {6, 8},   {10, 12}, {3, 5},  {7, 9},
        {3, 4},   {5, 6},  {7, 8},  {9, 10},  {11, 12}, {6, 7},  {8, 9}};

#pragma GCC unroll 4
    for (int h = 1; h < 16; h *= 2)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            if (!(i & h))
                in_order(v, i, i | h);
#pragma GCC unroll 28
    for (int i = 0; i < 28; i++)
        in_order(v, pair[i][0], pair[i][1]);
}

INLINE void
network(R *v, const int rows)
{
    if (rows == 2)
        in_order(v, 0, 1);
    else if (rows == 4)
        network_4(v);
    else if (rows == 8)
        network_8(v);
    else if (rows == 16)
        network_16(v);
}

INLINE void
columns_of(lane *x, int64_t n, int64_t width, const int rows)
{
    for (int64_t c = 0; c < width; c += N_LANES) {
        R v[16];

#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            v[r] = r < n ? v_load(x + r * width + c) : v_set(LARGEST);
        network(v, rows);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            if (r < n)
                v_store(x + r * width + c, v[r]);
    }
}

static void
columns(void *words, int64_t n, int64_t width)
{
    if (n <= 1)
        return;
    if (n <= 2)
        columns_of(words, n, width, 2);
    else if (n <= 4)
        columns_of(words, n, width, 4);
    else if (n <= 8)
        columns_of(words, n, width, 8);
    else
        columns_of(words, n, width, 16);
}

static bool
is_sorted(const void *words, int64_t n)
{
    const lane *x = words;
    int64_t i = 0;

    for (; i + N_LANES < n; i += N_LANES)
        if (m_any(v_lt(v_load(x + i + 1), v_load(x + i))))
            return false;
    for (; i + 1 < n; i++)
        if (x[i + 1] < x[i])
            return false;
    return true;
}

/* ---- by bytes, from the least --------------------------------------------
 * Stable, in time linear in n. */

static inline int
byte_of(lane x, int bit)
{
    const unsigned_lane sign = (unsigned_lane)1 << (MR_LANE_BITS - 1);

    return (int)((((unsigned_lane)x ^ sign) >> bit) & 255);
}

static void
by_bytes(lane *x, lane *spare, int64_t n)
{
    lane *from = x, *to = spare, *t;

    for (int bit = 0; bit < MR_LANE_BITS; bit += 8) {
        int64_t count[256] = {0}, at = 0;

        for (int64_t i = 0; i < n; i++)
            count[byte_of(from[i], bit)]++;
        if (count[byte_of(from[0], bit)] == n)
            continue;
        for (int d = 0; d < 256; d++) {
            int64_t c = count[d];

            count[d] = at;
            at += c;
        }
        for (int64_t i = 0; i < n; i++)
            to[count[byte_of(from[i], bit)]++] = from[i];
        t = from;
        from = to;
        to = t;
    }
    if (from != x)
        memcpy(x, from, (size_t)n * sizeof *x);
}

#ifdef ROWS
/* ---- what fits the registers --------------------------------------------- */

#define LANE_XOR_(i, h) ((i) ^ (h))

INLINE R
lanes_xor(R x, const int h)
{
    switch (h) {
    case 1:
        return __builtin_shufflevector(x, x, LANES_(LANE_XOR_, 1));
    case 2:
        return __builtin_shufflevector(x, x, LANES_(LANE_XOR_, 2));
#if N_LANES >= 4
    case 3:
        return __builtin_shufflevector(x, x, LANES_(LANE_XOR_, 3));
#endif
#if N_LANES >= 8
    case 4:
        return __builtin_shufflevector(x, x, LANES_(LANE_XOR_, 4));
    case 7:
        return __builtin_shufflevector(x, x, LANES_(LANE_XOR_, 7));
#endif
#if N_LANES >= 16
    case 8:
        return __builtin_shufflevector(x, x, LANES_(LANE_XOR_, 8));
    case 15:
        return __builtin_shufflevector(x, x, LANES_(LANE_XOR_, 15));
#endif
    default:
        return x;
    }
}

#define LANE_MASK_(i, h) ((i) & (h) ? 1 << (i) : 0)

/* Of x and y: the larger where the lane's number has bit h, else the smaller.
 */
INLINE R
by_lane(R x, R y, const int h)
{
#if MR_TIER_ID == MR_TIER_AVX512
    unsigned m = 0;

#pragma GCC unroll 16
    for (int i = 0; i < N_LANES; i++)
        m |= i & h ? 1U << i : 0;
#if MR_LANE_BITS == 32
    return (R)_mm512_mask_max_epi32((__m512i)least(x, y), (__mmask16)m,
                                    (__m512i)x, (__m512i)y);
#else
    return (R)_mm512_mask_max_epi64((__m512i)least(x, y), (__mmask8)m,
                                    (__m512i)x, (__m512i)y);
#endif
#else
    R number;

    memcpy(&number, lane_number, sizeof number);
    return v_select((M)((number & v_set(h)) != (R){0}), most(x, y),
                    least(x, y));
#endif
}

/* Groups of `group` lanes whose two halves are sorted become sorted. */
INLINE void
merge(R *v, const int rows, const int group)
{
#pragma GCC unroll 16
    for (int r = 0; r < (rows + 1) / 2; r++) {
        int last = rows - 1 - r;
        R a = v[r], b = v[last];

        v[r] = by_lane(a, lanes_xor(b, group - 1), group / 2);
        if (last != r)
            v[last] = by_lane(b, lanes_xor(a, group - 1), group / 2);
    }
#pragma GCC unroll 4
    for (int h = group / 4; h > 0; h /= 2)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            v[r] = by_lane(v[r], lanes_xor(v[r], h), h);
#pragma GCC unroll 4
    for (int h = rows / 2; h > 0; h /= 2)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            if (!(r & h))
                in_order(v, r, r | h);
}

/* From row + rows * lane to lane + N_LANES * row: the number's bits are
 * rotated by one in each round. */
INLINE void
turn(R *v, const int rows)
{
#pragma GCC unroll 4
    for (int h = rows; h > 1; h /= 2) {
        R w[ROWS];

#pragma GCC unroll 8
        for (int r = 0; r < rows / 2; r++) {
            w[2 * r] = v_zip_low(v[r], v[r + rows / 2]);
            w[2 * r + 1] = v_zip_high(v[r], v[r + rows / 2]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            v[r] = w[r];
    }
}

/* rows * N_LANES / 2 < n <= rows * N_LANES (or rows is 1). */
INLINE void
block(lane *x, int64_t n, const int rows)
{
    R v[ROWS];
    const R absent = v_set(LARGEST);

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        int64_t left = n - r * N_LANES;

        if (r < rows / 2 || left >= N_LANES)
            v[r] = v_load(x + r * N_LANES);
        else
            v[r] = v_select(m_below(left), v_load_n(x + r * N_LANES, left),
                            absent);
    }
    network(v, rows);
    merge(v, rows, 2);
    merge(v, rows, 4);
#if N_LANES >= 8
    merge(v, rows, 8);
#endif
#if N_LANES >= 16
    merge(v, rows, 16);
#endif
    turn(v, rows);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        int64_t left = n - r * N_LANES;

        if (r < rows / 2 || left >= N_LANES)
            v_store(x + r * N_LANES, v[r]);
        else
            v_store_n(x + r * N_LANES, v[r], left);
    }
}

static void
block_sort(lane *x, int64_t n)
{
    if (n <= N_LANES)
        block(x, n, 1);
    else if (n <= 2 * N_LANES)
        block(x, n, 2);
    else if (n <= 4 * N_LANES)
        block(x, n, 4);
    else if (n <= 8 * N_LANES)
        block(x, n, 8);
#if ROWS == 16
    else
        block(x, n, 16);
#endif
}

/* ---- partition ----------------------------------------------------------- */

/* Where a pass writes: the lower ones upwards from `low`; the others upwards
 * from `high` (AVX-512), or downwards. */
typedef struct sides {
    lane *low, *high;
} sides;

#if MR_TIER_ID == MR_TIER_AVX512
INLINE void
push(R x, R pivot, sides *to)
{
#if MR_LANE_BITS == 32
    unsigned m = _mm512_cmplt_epi32_mask((__m512i)x, (__m512i)pivot);
    __m512i low = _mm512_maskz_compress_epi32((__mmask16)m, (__m512i)x);
    __m512i high = _mm512_maskz_compress_epi32((__mmask16)~m, (__m512i)x);
#else
    unsigned m = _mm512_cmplt_epi64_mask((__m512i)x, (__m512i)pivot);
    __m512i low = _mm512_maskz_compress_epi64((__mmask8)m, (__m512i)x);
    __m512i high = _mm512_maskz_compress_epi64((__mmask8)~m, (__m512i)x);
#endif
    int below = __builtin_popcount(m);

    v_store(to->low, (R)low);
    v_store(to->high, (R)high);
    to->low += below;
    to->high += N_LANES - below;
}

/* The last n lanes, n < N_LANES. */
INLINE void
push_rest(const lane *x, int64_t n, lane pivot, sides *to)
{
    unsigned valid = (1U << n) - 1;
    __m512i v = (__m512i)v_load_n(x, n), p = (__m512i)v_set(pivot);
#if MR_LANE_BITS == 32
    unsigned m = _mm512_mask_cmplt_epi32_mask((__mmask16)valid, v, p);
    R low = (R)_mm512_maskz_compress_epi32((__mmask16)m, v);
    R high = (R)_mm512_maskz_compress_epi32((__mmask16)(m ^ valid), v);
#else
    unsigned m = _mm512_mask_cmplt_epi64_mask((__mmask8)valid, v, p);
    R low = (R)_mm512_maskz_compress_epi64((__mmask8)m, v);
    R high = (R)_mm512_maskz_compress_epi64((__mmask8)(m ^ valid), v);
#endif
    int below = __builtin_popcount(m);

    v_store_n(to->low, low, below);
    v_store_n(to->high, high, n - below);
    to->low += below;
    to->high += n - below;
}
#else
/* By mask of eight: its numbers, then the others, four bits each. */
#define PART_AT_(m, i)                                                         \
    (((m) >> (i)&1) ? __builtin_popcount((m) & ((1 << (i)) - 1))               \
                    : __builtin_popcount(m) +                                  \
                          __builtin_popcount(~(m) & ((1 << (i)) - 1)))
#define PART_(m, i) ((uint32_t)(i) << 4 * PART_AT_(m, i))
#define PARTS_1(m)                                                             \
    PART_(m, 0) | PART_(m, 1) | PART_(m, 2) | PART_(m, 3) | PART_(m, 4) |      \
        PART_(m, 5) | PART_(m, 6) | PART_(m, 7)
#define PARTS_4(m)                                                             \
    PARTS_1(m), PARTS_1((m) + 1), PARTS_1((m) + 2), PARTS_1((m) + 3)
#define PARTS_16(m)                                                            \
    PARTS_4(m), PARTS_4((m) + 4), PARTS_4((m) + 8), PARTS_4((m) + 12)
#define PARTS_64(m)                                                            \
    PARTS_16(m), PARTS_16((m) + 16), PARTS_16((m) + 32), PARTS_16((m) + 48)

static const uint32_t parts_of_8[256] = {PARTS_64(0), PARTS_64(64),
                                         PARTS_64(128), PARTS_64(192)};
#if MR_LANE_BITS == 32
#define PARTS parts_of_8
#else
/* The same of four lanes, as numbers of their halves. */
static const uint32_t parts_of_4[16] = {
    0x76543210, 0x76543210, 0x76541032, 0x76543210, 0x76321054, 0x76325410,
    0x76105432, 0x76543210, 0x54321076, 0x54327610, 0x54107632, 0x54763210,
    0x32107654, 0x32765410, 0x10765432, 0x76543210};
#define PARTS parts_of_4
#endif

INLINE unsigned
mask_of(M m)
{
#if MR_LANE_BITS == 32
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps((__m256i)m));
#else
    return (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd((__m256i)m));
#endif
}

/* Parts of 32 bits in the order of a table's entry. */
INLINE __m256i
parts_move(__m256i x, uint32_t order)
{
    const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    __m256i at = _mm256_srlv_epi32(_mm256_set1_epi32((int)order), shift);

    return _mm256_permutevar8x32_epi32(x, at);
}

/* The lanes of the mask, then the others. */
INLINE R
lanes_first(R x, unsigned m)
{
    return (R)parts_move((__m256i)x, PARTS[m]);
}

INLINE void
push(R x, R pivot, sides *to)
{
    unsigned m = mask_of(x < pivot);
    R both = lanes_first(x, m);
    int below = __builtin_popcount(m);

    v_store(to->low, both);
    v_store(to->high - N_LANES, both);
    to->low += below;
    to->high -= N_LANES - below;
}

INLINE void
push_rest(const lane *x, int64_t n, lane pivot, sides *to)
{
    for (int64_t i = 0; i < n; i++) {
        lane e = x[i];

        *to->low = e;
        to->high[-1] = e;
        to->low += e < pivot;
        to->high -= e >= pivot;
    }
}
#endif

/* How many are below the pivot: they come first. */
static int64_t
partition(lane *x, lane *spare, int64_t n, lane pivot)
{
#if MR_TIER_ID == MR_TIER_AVX512
    sides to = {x, spare};
#else
    sides to = {x, spare + n};
#endif
    const R p = v_set(pivot);
    int64_t i = 0, below;

    for (; i + 4 * N_LANES <= n; i += 4 * N_LANES) {
        R a = v_load(x + i), b = v_load(x + i + N_LANES);
        R c = v_load(x + i + 2 * N_LANES), d = v_load(x + i + 3 * N_LANES);

        push(a, p, &to);
        push(b, p, &to);
        push(c, p, &to);
        push(d, p, &to);
    }
    for (; i + N_LANES <= n; i += N_LANES)
        push(v_load(x + i), p, &to);
    push_rest(x + i, n - i, pivot, &to);
    below = to.low - x;
#if MR_TIER_ID != MR_TIER_AVX512
    spare = to.high;
#endif
    memcpy(to.low, spare, (size_t)(n - below) * sizeof *x);
    return below;
}

/* ---- quicksort ----------------------------------------------------------- */

/* A segment; none of its elements is below `bound`; `bad` more partitions may
 * turn out uneven. */
typedef struct segment {
    lane *x;
    int64_t n;
    lane bound;
    bool bounded;
    int bad;
} segment;

/* The middle one of a sample taken at steps that are not all equal. */
static lane
pivot_of(const lane *x, int64_t n)
{
    lane sample[4 * N_LANES];
    int64_t count = n < 1024 ? N_LANES : 4 * N_LANES, step = n / count;
    uint32_t seed = (uint32_t)n;

    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        sample[i] =
            x[i * step + (int64_t)((uint64_t)seed * (uint64_t)step >> 32)];
    }
    if (n < 1024)
        block(sample, N_LANES, 1);
    else
        block(sample, 4 * N_LANES, 4);
    return sample[count / 2];
}

/* Parts s; what is left of it stays in s (perhaps nothing), the other part, if
 * any, is returned. */
static segment
segment_part(segment *s, lane *spare)
{
    segment other = {0};
    lane pivot = pivot_of(s->x, s->n);
    bool equal = s->bounded && pivot == s->bound;
    int64_t n = s->n, below;

    if (equal && pivot == LARGEST) {
        s->n = 0;
        return other;
    }
    below = partition(s->x, spare, n, equal ? pivot + 1 : pivot);
    if (below < n / 8 || (n - below < n / 8 && !equal))
        s->bad--;
    if (!equal)
        other = (segment){s->x, below, s->bound, s->bounded, s->bad};
    s->x += below;
    s->n -= below;
    s->bound = pivot;
    s->bounded = !equal;
    return other;
}

static void
run(void *words, void *spare, int64_t n)
{
    /* the larger part waits, so each one here is half of the one before */
    segment stack[64];
    int top = 0;

    if (n > ROWS * N_LANES && is_sorted(words, n))
        return;
    stack[top++] = (segment){.x = words, .n = n, .bad = 8};
    while (top > 0) {
        segment s = stack[--top];

        while (s.n > ROWS * N_LANES && s.bad > 0) {
            segment other = segment_part(&s, spare);

            if (other.n > s.n) {
                stack[top++] = other;
            } else if (other.n > 1) {
                stack[top++] = s;
                s = other;
            }
        }
        if (s.n > ROWS * N_LANES)
            by_bytes(s.x, spare, s.n);
        else if (s.n > 1)
            block_sort(s.x, s.n);
    }
}
#else
enum { SHORT = 48 };

static void
insertion(lane *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        lane e = x[i];
        int64_t j = i;

        for (; j > 0 && x[j - 1] > e; j--)
            x[j] = x[j - 1];
        x[j] = e;
    }
}

/* Without a branch: each element is stored on both sides. */
static int64_t
partition(lane *x, lane *spare, int64_t n, lane pivot)
{
    int64_t below = 0;

    for (int64_t i = 0; i < n; i++) {
        lane e = x[i];

        x[below] = e;
        spare[i - below] = e;
        below += e < pivot;
    }
    memcpy(x + below, spare, (size_t)(n - below) * sizeof *x);
    return below;
}

static void
run(void *words, void *spare, int64_t n)
{
    if (n <= SHORT)
        insertion(words, n);
    else
        by_bytes(words, spare, n);
}
#endif

static int64_t
part(void *words, void *spare, int64_t n, int64_t pivot)
{
    return partition(words, spare, n, (lane)pivot);
}

/* ---- selection ----------------------------------------------------------- */

enum { SELECT_SHORT = 512, SELECT_SAMPLE = 128, SELECT_MARGIN = 6 };

/* A pivot beyond the rank, seen from the nearer end, so that what is left is
 * little more than a tenth once the rank is near an end. */
static lane
select_pivot(const lane *x, int64_t n, int64_t rank)
{
    lane sample[SELECT_SAMPLE], spare[SELECT_SAMPLE];
    int64_t step = n / SELECT_SAMPLE, at;
    uint32_t seed = (uint32_t)n;

    for (int64_t i = 0; i < SELECT_SAMPLE; i++) {
        seed = seed * 1664525U + 1013904223U;
        sample[i] =
            x[i * step + (int64_t)((uint64_t)seed * (uint64_t)step >> 32)];
    }
    run(sample, spare, SELECT_SAMPLE);
    at = (int64_t)((double)rank / (double)n * SELECT_SAMPLE);
    at += at < SELECT_SAMPLE / 2 ? SELECT_MARGIN : -SELECT_MARGIN;
    return sample[at];
}

static int64_t
select_rank(void *words, void *spare, int64_t n, int64_t rank)
{
    lane *x = words;

    /* bad pivots: by a sort */
    for (int tries = 0; n > SELECT_SHORT && tries < 32; tries++) {
        lane pivot = select_pivot(x, n, rank);
        int64_t below = partition(x, spare, n, pivot);

        if (below == 0) {
            if (pivot == LARGEST)
                return pivot;
            below = partition(x, spare, n, pivot + 1);
            if (rank < below)
                return pivot;
        }
        if (rank < below) {
            n = below;
        } else {
            x += below;
            n -= below;
            rank -= below;
        }
    }
    run(x, spare, n);
    return x[rank];
}

/* The lanes of x between low and high to `to`; how many are below. */
#ifdef ROWS
INLINE int
between_push(R x, R low, R high, lane **to)
{
#if MR_TIER_ID == MR_TIER_AVX512
#if MR_LANE_BITS == 32
    unsigned below = _mm512_cmplt_epi32_mask((__m512i)x, (__m512i)low);
    unsigned upto = _mm512_cmple_epi32_mask((__m512i)x, (__m512i)high);
    unsigned m = upto & ~below;

    v_store(*to, (R)_mm512_maskz_compress_epi32((__mmask16)m, (__m512i)x));
#else
    unsigned below = _mm512_cmplt_epi64_mask((__m512i)x, (__m512i)low);
    unsigned upto = _mm512_cmple_epi64_mask((__m512i)x, (__m512i)high);
    unsigned m = upto & ~below;

    v_store(*to, (R)_mm512_maskz_compress_epi64((__mmask8)m, (__m512i)x));
#endif
#else
    unsigned below = mask_of(x < low), m = ~(below | mask_of(x > high));

    m &= (1U << N_LANES) - 1;
    v_store(*to, lanes_first(x, m));
#endif
    *to += __builtin_popcount(m);
    return __builtin_popcount(below);
}
#endif

static int64_t
between(void *to, const void *words, int64_t n, int64_t low, int64_t high,
        int64_t *below)
{
    const lane *x = words;
    const lane least_one = (lane)low, last = (lane)high;
    lane *o = to;
    int64_t i = 0, under = 0;

#ifdef ROWS
    /* a vector is stored no further than it was read */
    for (; i + 4 * N_LANES <= n; i += 4 * N_LANES)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            under += between_push(v_load(x + i + j * N_LANES), v_set(least_one),
                                  v_set(last), &o);
#endif
    for (; i < n; i++) {
        lane e = x[i];

        *o = e;
        o += e >= least_one && e <= last;
        under += e < least_one;
    }
    *below = under;
    return o - (lane *)to;
}

static void
rank_count(const void *words, int64_t n, int64_t key, int64_t count[2])
{
    const lane *x = words;
    const lane k = (lane)key;
    int64_t below = 0, equal = 0;

    for (int64_t i = 0; i < n; i++) {
        below += x[i] < k;
        equal += x[i] == k;
    }
    count[0] = below;
    count[1] = equal;
}

#if MR_TIER_ID == MR_TIER_AVX512
#if MR_LANE_BITS == 32
typedef __m512i index_vector;
#define INDEX_START     _mm512_loadu_si512(lane_number)
#define INDEX_SET(i)    _mm512_set1_epi32((int)(i))
#define INDEX_ADD(a, b) _mm512_add_epi32(a, b)
#define INDEX_PUSH(p, m, n, i)                                                 \
    _mm512_mask_storeu_epi32(p, (__mmask16)((1U << (n)) - 1),                  \
                             _mm512_maskz_compress_epi32((__mmask16)(m), i))
#define LANES_BELOW(v, x, k)                                                   \
    _mm512_mask_cmplt_epi32_mask((__mmask16)(v), (__m512i)(x), (__m512i)(k))
#else
typedef __m256i index_vector;
#define INDEX_START     _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
#define INDEX_SET(i)    _mm256_set1_epi32((int)(i))
#define INDEX_ADD(a, b) _mm256_add_epi32(a, b)
#define INDEX_PUSH(p, m, n, i)                                                 \
    _mm256_mask_storeu_epi32(p, (__mmask8)((1U << (n)) - 1),                   \
                             _mm256_maskz_compress_epi32((__mmask8)(m), i))
#define LANES_BELOW(v, x, k)                                                   \
    _mm512_mask_cmplt_epi64_mask((__mmask8)(v), (__m512i)(x), (__m512i)(k))
#endif

/* Are four vectors below k? */
INLINE bool
all_below(const lane *x, R k)
{
    R a = most(v_load(x), v_load(x + N_LANES));
    R b = most(v_load(x + 2 * N_LANES), v_load(x + 3 * N_LANES));
    unsigned all = (unsigned)((1ULL << N_LANES) - 1);

    return LANES_BELOW(all, most(a, b), k) == all;
}

static void
deal(mr_sort_deal *d, const void *words, int64_t n, int64_t key, uint32_t first)
{
    const lane *x = words;
    const R k = v_set((lane)key);
    index_vector at = INDEX_ADD(INDEX_START, INDEX_SET(first));
    int64_t i = 0;

    for (; i < n; i += N_LANES) {
        unsigned valid = n - i < N_LANES ? (1U << (n - i)) - 1
                                         : (unsigned)((1ULL << N_LANES) - 1);
        R v = n - i < N_LANES ? v_load_n(x + i, n - i) : v_load(x + i);
        unsigned low = LANES_BELOW(valid, v, k),
                 high = LANES_BELOW(valid, k, v);
        unsigned equal = valid & ~(low | high);

        if (d->low) {
            INDEX_PUSH(d->low, low, __builtin_popcount(low), at);
            d->low += __builtin_popcount(low);
        }
        if (high) {
            INDEX_PUSH(d->high, high, __builtin_popcount(high), at);
            d->high += __builtin_popcount(high);
        }
        if (equal && d->skip == 0) {
            INDEX_PUSH(d->equal, equal, __builtin_popcount(equal), at);
            d->equal += __builtin_popcount(equal);
            equal = 0;
        }
        for (; equal; equal &= equal - 1)
            if (d->skip > 0)
                d->skip--;
            else
                *d->equal++ =
                    first + (uint32_t)i + (uint32_t)__builtin_ctz(equal);
        at = INDEX_ADD(at, INDEX_SET(N_LANES));
        /* few are wanted of a tail */
        for (; !d->low && i + 5 * N_LANES <= n && all_below(x + i + N_LANES, k);
             i += 4 * N_LANES)
            at = INDEX_ADD(at, INDEX_SET(4 * N_LANES));
    }
}
#elif defined(ROWS)
/* Places are put down through buffers: a whole register is stored for each
 * eight, and what lies behind a piece's own belongs to others. */
enum { DEAL = 256, EIGHT = 8 };

typedef struct dealt {
    uint32_t low[DEAL + EIGHT], high[DEAL + EIGHT];
    int64_t n_low, n_high;
} dealt;

/* Which of eight words from x on are below k. */
INLINE unsigned
eight_below(const lane *x, R k)
{
    unsigned m = 0;

    for (int i = 0; i < EIGHT / N_LANES; i++)
        m |= mask_of(v_load(x + i * N_LANES) < k) << i * N_LANES;
    return m;
}

INLINE unsigned
eight_above(const lane *x, R k)
{
    unsigned m = 0;

    for (int i = 0; i < EIGHT / N_LANES; i++)
        m |= mask_of(v_load(x + i * N_LANES) > k) << i * N_LANES;
    return m;
}

/* Are 32 words below k? */
INLINE bool
all_below(const lane *x, R k)
{
    unsigned m = eight_below(x, k);

    for (int i = EIGHT; i < 4 * EIGHT; i += EIGHT)
        m &= eight_below(x + i, k);
    return m == 0xFF;
}

INLINE void
equal_put(mr_sort_deal *d, uint32_t place)
{
    if (d->skip > 0)
        d->skip--;
    else
        *d->equal++ = place;
}

INLINE int64_t
eight_put(uint32_t *to, __m256i at, unsigned m)
{
    _mm256_storeu_si256((__m256i *)(void *)to, parts_move(at, parts_of_8[m]));
    return __builtin_popcount(m);
}

/* n words, up to DEAL. */
static void
deal_some(mr_sort_deal *d, dealt *to, const lane *x, int64_t n, lane key,
          uint32_t first)
{
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const R k = v_set(key);
    int64_t i = 0;

    for (; i + EIGHT <= n; i += EIGHT) {
        unsigned low = eight_below(x + i, k), high = eight_above(x + i, k);
        uint32_t place = first + (uint32_t)i;
        __m256i at = _mm256_add_epi32(_mm256_set1_epi32((int)place), numbers);

        to->n_low += eight_put(to->low + to->n_low, at, low);
        to->n_high += eight_put(to->high + to->n_high, at, high);
        for (unsigned m = ~(low | high) & 0xFF; m; m &= m - 1)
            equal_put(d, place + (uint32_t)__builtin_ctz(m));
    }
    for (; i < n; i++) {
        uint32_t place = first + (uint32_t)i;

        to->low[to->n_low] = to->high[to->n_high] = place;
        to->n_low += x[i] < key;
        to->n_high += x[i] > key;
        if (x[i] == key)
            equal_put(d, place);
    }
}

static void
deal(mr_sort_deal *d, const void *words, int64_t n, int64_t key, uint32_t first)
{
    const lane *x = words;
    const R k = v_set((lane)key);
    dealt to;

    for (int64_t i = 0, m; i < n; i += m) {
        /* few are wanted of a tail */
        for (m = 0; !d->low && i + m + 4 * EIGHT <= n; m += 4 * EIGHT)
            if (!all_below(x + i + m, k))
                break;
        i += m;
        m = d->low ? DEAL : 4 * EIGHT;
        m = n - i < m ? n - i : m;
        to.n_low = to.n_high = 0;
        deal_some(d, &to, x + i, m, (lane)key, first + (uint32_t)i);
        if (d->low) {
            memcpy(d->low, to.low, (size_t)to.n_low * sizeof *to.low);
            d->low += to.n_low;
        }
        if (to.n_high > 0) {
            memcpy(d->high, to.high, (size_t)to.n_high * sizeof *to.high);
            d->high += to.n_high;
        }
    }
}
#else
static void
deal(mr_sort_deal *d, const void *words, int64_t n, int64_t key, uint32_t first)
{
    const lane *x = words;
    const lane k = (lane)key;

    for (int64_t i = 0; i < n; i++) {
        uint32_t place = first + (uint32_t)i;

        if (x[i] < k) {
            if (d->low)
                *d->low++ = place;
        } else if (x[i] > k) {
            *d->high++ = place;
        } else if (d->skip > 0) {
            d->skip--;
        } else {
            *d->equal++ = place;
        }
    }
}
#endif

/* ---- keys ---------------------------------------------------------------- */

/* A float's bits, sign-extended: below 0 the order is the other way. */
INLINE lane
float_key(lane x, const int bits, lane infinity, bool zeros_equal)
{
    const lane number = (lane)(~(unsigned_lane)0 >> (MR_LANE_BITS + 1 - bits));
    lane key = x < 0 ? x ^ number : x;

    key = zeros_equal && key == -1 ? 0 : key;
    return (x & number) > infinity ? number : key;
}

/* In place too: no element depends on another. */
#ifdef __clang__
#define EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define EACH _Pragma("GCC ivdep")
#endif

#define KEYS(type, KEY)                                                        \
    do {                                                                       \
        const type *x = from;                                                  \
        lane *y = to;                                                          \
                                                                               \
        EACH for (int64_t i = 0; i < n; i++) y[i] = KEY;                       \
    } while (0)
#define VALUES(type, VALUE)                                                    \
    do {                                                                       \
        const lane *x = from;                                                  \
        type *y = to;                                                          \
                                                                               \
        EACH for (int64_t i = 0; i < n; i++) y[i] = (type)(VALUE);             \
    } while (0)
/* Of each way of making one: X(type, bits). */
#define KEYS_OF(type, bits)                                                    \
    do {                                                                       \
        const lane half = (lane)((unsigned_lane)1 << ((bits)-1));              \
        const lane infinity = (lane)f.infinity;                                \
                                                                               \
        if (f.kind == MR_KEY_SIGNED)                                           \
            KEYS(type, x[i]);                                                  \
        else if (f.kind == MR_KEY_UNSIGNED)                                    \
            KEYS(type, (lane)((type)(x[i] ^ (type)half)));                     \
        else                                                                   \
            KEYS(type, float_key(x[i], bits, infinity, zeros_equal));          \
    } while (0)
#define VALUES_OF(type, bits)                                                  \
    do {                                                                       \
        const lane half = (lane)((unsigned_lane)1 << ((bits)-1));              \
                                                                               \
        if (f.kind == MR_KEY_SIGNED)                                           \
            VALUES(type, x[i]);                                                \
        else if (f.kind == MR_KEY_UNSIGNED)                                    \
            VALUES(type, x[i] ^ half);                                         \
        else                                                                   \
            VALUES(type,                                                       \
                   x[i] < 0 ? x[i] ^ (lane)((unsigned_lane)half - 1) : x[i]);  \
    } while (0)

/* ---- keys with their places ---------------------------------------------- */

static void
pack(void *to, const int32_t *keys, int64_t n, int bits, int64_t first,
     int64_t step)
{
    lane *y = to, place = (lane)first, by = (lane)step;

    EACH for (int64_t i = 0; i < n; i++) y[i] =
        (lane)((unsigned_lane)(lane)keys[i] << bits) | (place + (lane)i * by);
}

static void
places(uint32_t *to, const void *words, int64_t n, int bits)
{
    const lane *x = words;
    const unsigned_lane mask = ((unsigned_lane)1 << bits) - 1;

    EACH for (int64_t i = 0; i < n; i++) to[i] =
        (uint32_t)((unsigned_lane)x[i] & mask);
}

/* The table of a width, whose file has keys and values. */
#define SORT_TIER                                                              \
    {                                                                          \
        .run = run, .sorted = is_sorted, .part = part, .select = select_rank,  \
        .between = between, .rank = rank_count, .deal = deal,                  \
        .columns = columns, .keys = keys, .values = values, .pack = pack,      \
        .places = places,                                                      \
    }

#endif
