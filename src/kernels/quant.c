/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- quantised matrices: groups made and packed, rows read, panels for
 * the packed product, products with few rows; over what the tier gives.
 *
 * Affine groups follow the rule that the number of largest magnitude becomes
 * the bias, with code 0, and zero falls on a code; one bit has the least and
 * the largest number.  Scales of the mx formats round up to a power of two, so
 * no element exceeds the largest.
 * Called by: cpu/quant.c, cpu/quant_product.c.  Calls: the tier's kernels,
 * casts.
 */
#include "kernels/quant.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/float8.h"
#include "kernels/gemm.h"
#include "kernels/quant_digits.h"
#include "kernels/tier/tier.h"

/* Of the tier in use. */
static const mr_quant_tier *
quant_tier(void)
{
    return mr__tier()->quant;
}

mr_quant_kind
mr__quant_kind(const mr_quant_format *f)
{
    static const mr_quant_kind by_bits[9] = {
        [1] = MR_QUANT_1, [2] = MR_QUANT_2, [3] = MR_QUANT_3, [4] = MR_QUANT_4,
        [5] = MR_QUANT_5, [6] = MR_QUANT_6, [8] = MR_QUANT_8};

    assert(f->bits >= 1 && f->bits <= 8);
    return f->code == MR_CODE_E2M1   ? MR_QUANT_E2M1
           : f->code == MR_CODE_E4M3 ? MR_QUANT_E4M3
                                     : by_bits[f->bits];
}

enum { MAX_LANES = 16 }; /* of a vector of floats */
enum { PIECE = 512 };    /* columns that are read at a time */

/* x as it is in type t; n <= PIECE. */
static void
round_to(float *x, int64_t n, mr_dtype t)
{
    uint16_t half[PIECE];

    if (t == MR_FLOAT32)
        return;
    mr__tier()->casts->cast[MR_FLOAT32][t](half, x, n);
    mr__tier()->casts->cast[t][MR_FLOAT32](x, half, n);
}

/* ---- making ---------------------------------------------------------------
 */

/* The sign that MLX's order of comparing gives: that of the first zero. */
static float
first_zero(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i] == 0.0F)
            return x[i];
    return 0.0F;
}

void
mr__quant_affine(const float *x, int n, int bits, uint32_t *codes, float *scale,
                 float *bias)
{
    const mr_quant_tier *t = quant_tier();
    float largest = (float)((1 << bits) - 1), lo, hi, s, edge, q;

    t->extremes(x, n, &lo, &hi);
    s = (hi - lo) / largest;
    s = s < 1e-7F ? 1e-7F : s;
    *bias = 0.0F;
    if (bits == 1) {
        *bias = lo == 0.0F ? first_zero(x, n) : lo;
    } else {
        bool negative_wins = fabsf(lo) > fabsf(hi);

        s = negative_wins ? s : -s;
        edge = negative_wins ? lo : hi;
        q = rintf(edge / s);
        if (q != 0.0F) {
            s = edge / q;
            *bias = edge;
        }
    }
    *scale = s;
    t->codes(x, n, s, *bias, largest, codes);
}

/* The nearest 4-bit elements: how many of the midpoints a number lies beyond,
 * and those it lies on that go to the upper one: every second of them when
 * ties go to the even element, else none.  Plain sums, so that compilers make
 * vectors of them. */
static void
e2m1_codes(const float *x, int n, bool ties_even, uint32_t *codes)
{
    /* the least float beyond a midpoint, or it itself */
    const float b = ties_even ? 0.75F : nextafterf(0.75F, 1.0F);
    const float d = ties_even ? 1.75F : nextafterf(1.75F, 2.0F);
    const float f = ties_even ? 3.5F : nextafterf(3.5F, 4.0F);

    for (int i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        int32_t c = (a > 0.25F) + (a >= b) + (a > 1.25F) + (a >= d) +
                    (a > 2.5F) + (a >= f) + (a > 5.0F);

        codes[i] = (uint32_t)(c + (x[i] < -0.25F ? 8 : 0));
    }
}

float
mr__quant_scale_byte(mr_quant_scale kind, uint8_t byte)
{
    uint32_t bits = byte == 0     ? 0x00400000
                    : byte == 255 ? 0x7fc00000
                                  : (uint32_t)byte << 23;
    float y;

    if (kind == MR_SCALE_E4M3)
        return mr__e4m3_to_float(byte);
    memcpy(&y, &bits, sizeof y);
    return y;
}

float
mr__quant_element(const mr_quant_format *f, uint32_t code)
{
    static const float e2m1[8] = {0.0F, 0.5F, 1.0F, 1.5F,
                                  2.0F, 3.0F, 4.0F, 6.0F};

    if (f->code == MR_CODE_E4M3)
        return mr__e4m3_to_float((uint8_t)code);
    return code & 8 ? -e2m1[code & 7] : e2m1[code & 7];
}

/* The least power of two that is not below x > 0, as a byte. */
static uint8_t
e8m0_from_float(float x)
{
    int e = (int)ceilf((float)log2((double)x));

    return (uint8_t)((e < -127 ? -127 : e > 127 ? 127 : e) + 127);
}

void
mr__quant_float(const float *x, int n, mr_dtype t, const mr_quant_format *f,
                bool ties_even, float factor, uint32_t *codes, uint8_t *scale)
{
    float largest = f->code == MR_CODE_E4M3 ? MR_E4M3_LARGEST : 6.0F;
    float y[MR_QUANT_FLOAT_GROUP], lo, hi, most, s;

    quant_tier()->extremes(x, n, &lo, &hi);
    most = fabsf(lo) > fabsf(hi) ? fabsf(lo) : fabsf(hi);
    s = most / largest;
    round_to(&s, 1, t);
    if (f->scale == MR_SCALE_E4M3)
        *scale = most > 0.0F ? mr__e4m3_from_float(s * factor) : (uint8_t)0;
    else if (s == 0.0F)
        *scale = 127;
    else /* of infinity and NaN the largest that is a number */
        *scale = isfinite(s) ? e8m0_from_float(s) : 254;
    s = mr__quant_scale_byte(f->scale, *scale);
    for (int i = 0; i < n; i++)
        y[i] = s == 0.0F ? 0.0F : x[i] / s;
    round_to(y, n, t);
    for (int i = 0; i < n; i++)
        y[i] *= factor;
    if (f->code == MR_CODE_E2M1)
        e2m1_codes(y, n, ties_even, codes);
    for (int i = 0; f->code == MR_CODE_E4M3 && i < n; i++)
        codes[i] = mr__e4m3_from_float(y[i]);
}

void
mr__quant_pack(const uint32_t *codes, int n, int bits, uint32_t *words)
{
    uint64_t wait = 0;
    int have = 0;

    for (int i = 0; i < n; i++) {
        wait |= (uint64_t)codes[i] << have;
        have += bits;
        if (have >= 32) {
            *words++ = (uint32_t)wait;
            wait >>= 32;
            have -= 32;
        }
    }
}

/* ---- scales ---------------------------------------------------------------
 */

/* n scales from `at` on as floats. */
static void
scales_read(const void *from, mr_quant_scale kind, int64_t at, int64_t n,
            float *to)
{
    const mr_tier_casts *casts = mr__tier()->casts;
    const uint8_t *bytes = from;

    switch (kind) {
    case MR_SCALE_FLOAT32:
        memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
        return;
    case MR_SCALE_FLOAT16:
        casts->cast[MR_FLOAT16][MR_FLOAT32](to, (const uint16_t *)from + at, n);
        return;
    case MR_SCALE_BFLOAT16:
        casts->cast[MR_BFLOAT16][MR_FLOAT32](to, (const uint16_t *)from + at,
                                             n);
        return;
    case MR_SCALE_E8M0:
    case MR_SCALE_E4M3:
        break;
    }
    quant_tier()->scales[kind == MR_SCALE_E4M3](bytes + at, n, to);
}

int
mr__quant_scale_bytes(mr_quant_scale kind)
{
    return kind == MR_SCALE_FLOAT32                         ? 4
           : kind == MR_SCALE_E8M0 || kind == MR_SCALE_E4M3 ? 1
                                                            : 2;
}

static float
scale_at(const void *from, mr_quant_scale kind, int64_t i)
{
    uint32_t bits;
    float x;

    if (kind == MR_SCALE_FLOAT32)
        return ((const float *)from)[i];
    if (kind == MR_SCALE_BFLOAT16) {
        bits = (uint32_t)((const uint16_t *)from)[i] << 16;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    scales_read(from, kind, i, 1, &x);
    return x;
}

static mr_dtype
scale_dtype(mr_quant_scale kind)
{
    return kind == MR_SCALE_FLOAT16    ? MR_FLOAT16
           : kind == MR_SCALE_BFLOAT16 ? MR_BFLOAT16
                                       : MR_FLOAT32;
}

/* ---- reading --------------------------------------------------------------
 */

/* At most PIECE columns. */
static void
piece_read(const mr_quant_matrix *w, int64_t row, int64_t k0, int64_t n,
           float factor, bool round, float *to)
{
    const mr_quant_tier *t = quant_tier();
    int64_t group = w->f.group, per_row = w->cols / group;
    int64_t eights = (row * w->cols + k0) / 8;
    int64_t behind = (w->rows * w->cols - n) / 8 - eights;
    const uint8_t *bytes = (const uint8_t *)w->words + eights * w->f.bits;

    t->unpack[mr__quant_kind(&w->f)](bytes, n, behind * w->f.bits, to);
    for (int64_t g = k0 / group; g * group < k0 + n; g++) {
        int64_t at = row * per_row + g, from = g * group - k0;
        int64_t stop = from + group < n ? from + group : n;
        float scale = scale_at(w->scales, w->f.scale, at) * factor;
        /* -0 adds nothing, not even to -0 */
        float bias = w->f.biased ? scale_at(w->biases, w->f.scale, at) : -0.0F;

        from = from < 0 ? 0 : from;
        t->scale(to + from, stop - from, scale, round ? -0.0F : bias);
        if (!round)
            continue;
        round_to(to + from, stop - from, scale_dtype(w->f.scale));
        t->scale(to + from, stop - from, 1.0F, bias);
    }
}

void
mr__quant_read(const mr_quant_matrix *w, int64_t row, int64_t k0, int64_t n,
               float factor, bool round, float *to)
{
    round = round && w->f.biased && w->f.scale != MR_SCALE_FLOAT32;
    for (int64_t i = 0, count; i < n; i += count) {
        count = n - i < PIECE ? n - i : PIECE;
        piece_read(w, row, k0 + i, count, factor, round, to + i);
    }
}

enum { MOST_GROUPS = MR_GEMM_DEPTH / 16 + 2 }; /* of a panel's depths */

/* to[i * width + l] = word i of n, of lane l, whose first is at from + l *
 * stride; lanes that are left out are 0. */
static void
lanes_turn(const void *from, int64_t stride, int64_t lanes, int width,
           int64_t n, void *to)
{
    mr__gemm_of_tier(mr__tier()->id)->turn(to, from, stride, lanes, width, n);
}

/* Scales (or biases) of rows [row0, row0 + lanes) for groups [first, first +
 * n), side by side: to[g * width + lane]; other lanes are 0, all without
 * scales. */
static void
lane_scales(const mr_quant_matrix *w, const void *from, int64_t row0,
            int64_t lanes, int64_t first, int64_t n, int width, float *to)
{
    int64_t per_row = w->cols / w->f.group, at = row0 * per_row + first;
    size_t size = (size_t)mr__quant_scale_bytes(w->f.scale);
    const char *bytes = from;
    char dense[MR_GEMM_MAX_COLS * MOST_GROUPS * sizeof(uint16_t)];
    float room[MR_GEMM_MAX_COLS * MOST_GROUPS];

    if (!from) {
        memset(to, 0, (size_t)(n * width) * sizeof *to);
        return;
    }
    bytes += (size_t)at * size;
    if (w->f.scale == MR_SCALE_FLOAT32) {
        lanes_turn(bytes, per_row, lanes, width, n, to);
        return;
    }
    for (int64_t l = 0; l < lanes; l++)
        memcpy(dense + (size_t)(l * n) * size,
               bytes + (size_t)(l * per_row) * size, (size_t)n * size);
    scales_read(dense, w->f.scale, 0, lanes * n, room);
    lanes_turn(room, n, lanes, width, n, to);
}

/* Brings near what rows have for the depths that are next: nothing else follows
 * a walk along many rows at once.  To the second-level cache: rows whose length
 * is a power of two share a few sets of the first, and it is slower to bring
 * them there than not at all (32 rows of 8 bits, one thread: 16.1 ms; 14.0
 * without; 13.3 so). */
static void
next_near(const mr_quant_matrix *w, int64_t row0, int64_t lanes, int64_t depth0,
          int64_t depth)
{
    int64_t per_row = w->cols / 8 * w->f.bits;
    uintptr_t from = (uintptr_t)w->words + (uintptr_t)(row0 * per_row);

    from += (uintptr_t)((depth0 + depth) / 8 * w->f.bits);
    for (int64_t l = 0; l < lanes; l++, from += (uintptr_t)per_row)
        for (int64_t i = 0; i < depth / 8 * w->f.bits; i += 64)
            __builtin_prefetch((const void *)(from + (uintptr_t)i), 0, 2);
}

/* Each lane a row: the lanes of a vector together, a group (or the part of it
 * that the depths have) at a time. */
static void
panel_of_rows(const mr_quant_matrix *w, int64_t row0, int64_t lanes,
              int64_t depth0, int64_t depth, float *to, int64_t step)
{
    const mr_quant_tier *t = quant_tier();
    mr_quant_lanes_fn *turned = t->turned[mr__quant_kind(&w->f)];
    float scale[MOST_GROUPS][MAX_LANES], bias[MOST_GROUPS][MAX_LANES];
    uint32_t words[MR_GEMM_DEPTH * 8 / 32 * MAX_LANES], *next = words;
    int64_t group = w->f.group, first = depth0 / group;
    int64_t n_groups = (depth0 + depth - 1) / group - first + 1;
    int64_t per_row = w->cols / 8 * w->f.bits;
    const char *from = (const char *)w->words + row0 * per_row;

    lane_scales(w, w->scales, row0, lanes, first, n_groups, MAX_LANES,
                scale[0]);
    lane_scales(w, w->f.biased ? w->biases : NULL, row0, lanes, first, n_groups,
                MAX_LANES, bias[0]);
    lanes_turn(from + depth0 / 8 * w->f.bits, per_row / 4, lanes, t->lanes,
               depth * w->f.bits / 32, words);
    for (int64_t k = depth0, n; k < depth0 + depth; k += n, to += n * step) {
        int64_t g = k / group;

        n = (g + 1) * group - k;
        n = n < depth0 + depth - k ? n : depth0 + depth - k;
        turned(next, n, scale[g - first], bias[g - first], to, step);
        next += n * w->f.bits / 32 * t->lanes;
    }
}

void
mr__quant_panel(const mr_quant_matrix *w, bool by_rows, int width,
                int64_t panel, int64_t depth0, int64_t depth, float *to)
{
    int64_t lane0 = panel * width;
    int64_t lanes = (by_rows ? w->rows : w->cols) - lane0;

    lanes = lanes < width ? lanes : width;
    for (int at = 0; by_rows && at < width; at += quant_tier()->lanes) {
        int64_t left = lanes - at, most = quant_tier()->lanes;

        left = left < 0 ? 0 : left < most ? left : most;
        panel_of_rows(w, lane0 + at, left, depth0, depth, to + at, width);
    }
    if (by_rows) {
        next_near(w, lane0, lanes, depth0, depth);
        return;
    }
    for (int64_t p = 0; p < depth; p++, to += width) {
        mr__quant_read(w, depth0 + p, lane0, lanes, 1.0F, false, to);
        for (int64_t l = lanes; l < width; l++)
            to[l] = 0.0F;
    }
}

/* ---- few rows -------------------------------------------------------------
 * Arranged: the numbers of x, in whole cells (or their digits), then for biased
 * formats their sums over the groups, with zeros up to a multiple of 16; then
 * 16 floats of which the first is the form they have. */

enum { FLAG_FLOATS = 16, SCALES = 2 * MR_QUANT_GROUPS };

/* Codes of a lane. */
static int
lane_codes(const mr_quant_format *f)
{
    return f->bits == 3 ? 8 : f->bits == 5 || f->bits == 6 ? 4 : 32 / f->bits;
}

static int64_t
whole(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

/* Of what they have in the form that takes most. */
static int64_t
numbers_floats(const mr_quant_format *f, int64_t cols)
{
    int64_t cells = whole(cols, 16 * lane_codes(f)), digits = 0;

    if (mr__quant_digits_pay(f))
        digits = mr__quant_digits_floats(f, cols);
    return cells > digits ? cells : digits;
}

int64_t
mr__quant_arranged_floats(const mr_quant_format *f, int64_t cols)
{
    int64_t sums = f->biased ? whole(cols / f->group, 16) : 0;

    return numbers_floats(f, cols) + sums + FLAG_FLOATS;
}

/* 16 lanes in a fixed order. */
static float
lanes_sum(float *lanes)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* How x is arranged. */
typedef enum form { FORM_PLAIN, FORM_IN_PLACE, FORM_BITS, FORM_DIGITS } form;

/* What the processor has for few rows: the least that is fast. Intel's cores
 * stop for each multiply-add of a subnormal number.  Relaxed: every thread
 * finds the same. */
typedef enum power { POWER_NONE = 1, POWER_BYTES, POWER_SUBNORMALS } power;

static power
power_find(void)
{
#if defined(__x86_64__)
    static atomic_int found;
    int f = atomic_load_explicit(&found, memory_order_relaxed);

    if (f == 0) {
        bool bytes = __builtin_cpu_supports("avx512vbmi") &&
                     __builtin_cpu_supports("gfni");

        /* tier "avx512" needs the bytes for these, "avx2" does not */
        bool any = bytes || !__builtin_cpu_supports("avx512f");

        f = any && __builtin_cpu_is("amd") ? POWER_SUBNORMALS
            : bytes                        ? POWER_BYTES
                                           : POWER_NONE;
        atomic_store_explicit(&found, f, memory_order_relaxed);
    }
    return (power)f;
#else
    return POWER_NONE;
#endif
}

/* Kernels for numbers of that form, by 1, 2, 4 (digits: 1, 2) rows; NULL: none.
 */
static mr_quant_dot_fn *const *
dots_for(const mr_quant_format *f, form how)
{
    const mr_quant_tier *t = quant_tier();
    mr_quant_kind kind = mr__quant_kind(f);
    bool bits = t->bits[kind][0] && power_find() >= POWER_SUBNORMALS;

    switch (how) {
    case FORM_DIGITS:
        return mr__quant_digits_dot(f);
    case FORM_BITS:
        return bits ? t->bits[kind] : NULL;
    case FORM_IN_PLACE:
        return t->in_place[kind][0] ? t->in_place[kind]
               : t->bytes[kind][0] && power_find() >= POWER_BYTES
                   ? t->bytes[kind]
                   : NULL;
    case FORM_PLAIN:
        break;
    }
    return t->dot[kind];
}

/* What some numbers have: such as cannot be divided by 2^31 without loss; such
 * of MR_QUANT_HUGE or more, infinite or NaN; such as are beyond what bits of
 * codes can meet: products that end at 2^-149 (E4M3: 2^-9 of its least code,
 * 2^-23 of x, 2^-40 of MR_QUANT_RAISED), or numbers that end at 2^127 (integers
 * have 2^109). */
typedef struct extent {
    bool tiny, huge, beyond;
} extent;

static extent
extent_find(const float *x, int64_t n)
{
    const int32_t least = (127 - 94) << 23, most = (127 + 64) << 23;
    const int32_t low = (127 - 77) << 23, high = (127 + 18) << 23;
    int32_t tiny = 0, huge = 0, beyond = 0;

    for (int64_t i = 0; i < n; i++) {
        int32_t size;

        memcpy(&size, x + i, sizeof size);
        size &= 0x7fffffff;
        tiny |= (size > 0) & (size < least);
        huge |= size >= most;
        beyond |= ((size > 0) & (size < low)) | (size >= high);
    }
    return (extent){tiny != 0, huge != 0, beyond != 0};
}

/* Numbers l * per_lane + j of a cell to j * 16 + l, those of even and odd lanes
 * times a factor. */
static void
cell_arrange(const float *x, int64_t n, int per_lane, float (*factor)[2],
             float *to)
{
    lanes_turn(x, per_lane, n / per_lane, 16, per_lane, to);
    for (int j = 0; j < per_lane; j++, to += 16)
        for (int l = 0; l < 16; l += 2) {
            to[l] *= factor[j][0];
            to[l + 1] *= factor[j][1];
        }
}

/* What a number that meets code j of a lane is multiplied by: 2 to minus its
 * place (E4M3 codes are looked up); as the bits of a float it is 2^-149 (E4M3:
 * 2^-120, E2M1: 2^-126) of its number besides. */
static float
form_factor(const mr_quant_format *f, form how, int j, bool odd)
{
    int place = j * f->bits, exponent = 0;
    uint32_t bits;
    float x;

    if (how == FORM_BITS && place >= 24)
        place -= 24;
    place += odd && f->bits == 5 ? 4 : 0;
    if (how == FORM_BITS)
        exponent = f->code == MR_CODE_E4M3   ? 120 - 40
                   : f->code == MR_CODE_E2M1 ? 126 - 40
                                             : 149 - 40 - place;
    else if (how == FORM_IN_PLACE && f->code != MR_CODE_E4M3)
        exponent = -place;
    bits = (uint32_t)(127 + exponent) << 23;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Of a multiple of 16. */
static float
group_sum(const float *x, int n)
{
    float lanes[16] = {0.0F};

    for (int k = 0; k < n; k += 16)
        for (int l = 0; l < 16; l++)
            lanes[l] += x[k + l];
    return lanes_sum(lanes);
}

void
mr__quant_group_sums(const float *x, int group, int64_t n, float *to)
{
    for (int64_t g = 0; g < n; g++)
        to[g] = group_sum(x + g * group, group);
}

/* In cells. */
static form
cells_arrange(const mr_quant_format *f, int64_t cols, const float *x, extent e,
              float *to)
{
    int per_lane = lane_codes(f);
    int64_t codes = 16 * per_lane, last = cols / codes * codes;
    float factor[32][2];
    form how = dots_for(f, FORM_BITS) && !e.beyond     ? FORM_BITS
               : dots_for(f, FORM_IN_PLACE) && !e.tiny ? FORM_IN_PLACE
                                                       : FORM_PLAIN;

    for (int j = 0; j < per_lane; j++)
        for (int odd = 0; odd < 2; odd++)
            factor[j][odd] = form_factor(f, how, j, odd);
    memset(to + last, 0, (size_t)(numbers_floats(f, cols) - last) * sizeof *to);
    for (int64_t k = 0; k < cols; k += codes)
        cell_arrange(x + k, cols - k < codes ? cols - k : codes, per_lane,
                     factor, to + k);
    return how;
}

void
mr__quant_arrange(const mr_quant_format *f, int64_t cols, const float *x,
                  int64_t m, float *to)
{
    int64_t numbers = numbers_floats(f, cols), groups = cols / f->group;
    int64_t all = mr__quant_arranged_floats(f, cols);
    float *sums = to + numbers;
    extent e = extent_find(x, cols);
    bool digits = m <= MR_QUANT_DIGITS_ROWS && !e.huge &&
                  mr__quant_digits_pay(f) &&
                  mr__quant_digits_arrange(f, cols, x, to);
    form how = digits ? FORM_DIGITS : cells_arrange(f, cols, x, e, to);

    memset(sums, 0, (size_t)(all - numbers) * sizeof *to);
    if (f->biased)
        mr__quant_group_sums(x, f->group, groups, sums);
    to[all - FLAG_FLOATS] = (float)how;
    to[all - FLAG_FLOATS + 1] = e.huge ? 1.0F : 0.0F;
}

static form
arranged_form(const mr_quant_matrix *w, const float *arranged)
{
    int64_t all = mr__quant_arranged_floats(&w->f, w->cols);

    return (form)arranged[all - FLAG_FLOATS];
}

bool
mr__quant_arranged_huge(const mr_quant_format *f, int64_t cols,
                        const float *arranged)
{
    int64_t all = mr__quant_arranged_floats(f, cols);

    return arranged[all - FLAG_FLOATS + 1] != 0.0F;
}

/* How many of m rows, 1, 2 or 4, go together: those arranged alike. */
static int
rows_alike(const mr_quant_matrix *w, const float *const *arranged, int m)
{
    int most = arranged_form(w, arranged[0]) == FORM_DIGITS
                   ? MR_QUANT_DIGITS_ROWS
                   : MR_QUANT_ROWS;
    int now = m < 2 ? 1 : m < most ? 2 : most;

    for (int i = 1; i < now; i++)
        if (arranged_form(w, arranged[i]) != arranged_form(w, arranged[0]))
            return 1;
    return now;
}

/* Scales (or biases) [at, at + n), 16 more of which may be read: where they
 * are, else in `room`. */
static const float *
scales_near(const mr_quant_matrix *w, const void *from, int64_t at, int64_t n,
            float *room)
{
    int64_t all = w->rows * (w->cols / w->f.group);

    if (w->f.scale == MR_SCALE_FLOAT32 && at + n + 16 <= all)
        return (const float *)from + at;
    scales_read(from, w->f.scale, at, n, room);
    memset(room + n, 0, 16 * sizeof *room);
    return room;
}

/* The scales of a span as digits take them: bytes where they are, if 16 more
 * may be read, or floats. */
static void
scales_of_digits(const mr_quant_matrix *w, int64_t at, int64_t n, float *room,
                 mr_quant_span *s)
{
    int64_t all = w->rows * (w->cols / w->f.group);
    const uint8_t *bytes = w->scales;

    if (at + n + 16 <= all && mr__quant_digits_bytes(&w->f, bytes + at, n)) {
        s->scale_bytes = bytes + at;
        s->bytes_e4m3 = w->f.scale == MR_SCALE_E4M3;
    } else {
        s->scale = scales_near(w, w->scales, at, n, room);
    }
}

/* The scales times MR_QUANT_RAISED, in `room`; false: one is too large. */
static bool
scales_raised(const mr_quant_matrix *w, int64_t at, int64_t n, float *room)
{
    const mr_quant_tier *t = quant_tier();
    const uint8_t *bytes = w->scales;

    if (mr__quant_scale_bytes(w->f.scale) > 1)
        return t->raised(scales_near(w, w->scales, at, n, room), whole(n, 16),
                         room);
    memset(room + n, 0, 16 * sizeof *room);
    return t->raised_bytes[w->f.scale == MR_SCALE_E4M3](bytes + at, n, room);
}

/* A span of a row that was arranged for the bits of codes, arranged plainly. */
static void
span_plain(const mr_quant_format *f, const float *x, int64_t n, float *to)
{
    int per_lane = lane_codes(f);
    float back[32][2];

    for (int j = 0; j < per_lane; j++)
        for (int odd = 0; odd < 2; odd++)
            back[j][odd] = 1.0F / form_factor(f, FORM_BITS, j, odd);
    for (int64_t k = 0; k < whole(n, 16 * per_lane); k++)
        to[k] = x[k] * back[k / 16 % per_lane][k % 2];
}

/* lanes[i * MR_QUANT_TOGETHER + r] += x[i] times columns [k, k + n) of row j +
 * r of w, for 1, 2 or 4 rows of x. */
static void
span_dot(const mr_quant_matrix *w, int64_t j, int64_t rows, int64_t k,
         int64_t n, int m, const float *const *x, float (*lanes)[16])
{
    const mr_quant_format *f = &w->f;
    int64_t per_row = w->cols / f->group, groups = n / f->group;
    int64_t numbers = numbers_floats(f, w->cols),
            at = j * per_row + k / f->group;
    int64_t all = (rows - 1) * per_row + groups;
    float scale[SCALES + 16], bias[SCALES + 16], plain[MR_QUANT_SPAN];
    const float *part[MR_QUANT_ROWS], *x_sums[MR_QUANT_ROWS];
    const uint8_t *words = w->words;
    form how = arranged_form(w, x[0]);
    mr_quant_span s = {
        .from = words + (j * w->cols + k) / 8 * f->bits,
        .end = words + w->rows * w->cols / 8 * f->bits,
        .n = n,
        .group = f->group,
        .n_groups = (int)groups,
        .scale = scale,
        .bias = f->biased ? scales_near(w, w->biases, at, all, bias) : NULL,
        .row_bytes = w->cols / 8 * f->bits,
        .row_groups = per_row};

    for (int i = 0; i < m; i++) {
        part[i] =
            x[i] + (how == FORM_DIGITS ? mr__quant_digits_floats(f, k) : k);
        x_sums[i] = x[i] + numbers + k / f->group;
    }
    if (how == FORM_BITS && scales_raised(w, at, all, scale)) {
        dots_for(f, how)[m / 2](&s, (int)rows, part, x_sums, lanes);
        return;
    }
    if (how == FORM_DIGITS)
        scales_of_digits(w, at, all, scale, &s);
    else
        s.scale = scales_near(w, w->scales, at, all, scale);
    if (how != FORM_BITS) {
        dots_for(f, how)[m / 2](&s, (int)rows, part, x_sums, lanes);
        return;
    }
    for (int i = 0; i < m; i++) {
        const float *one = plain;

        span_plain(f, part[i], n, plain);
        dots_for(f, FORM_PLAIN)[0](&s, (int)rows, &one, x_sums + i,
                                   lanes + i * MR_QUANT_TOGETHER);
    }
}

/* Rows of w whose scales for a span are no further apart than SCALES. */
static int64_t
rows_together(const mr_quant_matrix *w)
{
    int64_t cols = w->cols < MR_QUANT_SPAN ? w->cols : MR_QUANT_SPAN;
    int64_t per_row = w->cols / w->f.group, fit;

    fit = 1 + (SCALES - cols / w->f.group) / per_row;
    return fit < MR_QUANT_TOGETHER ? fit : MR_QUANT_TOGETHER;
}

void
mr__quant_dot(const mr_quant_matrix *w, int64_t j0, int64_t j1, int m,
              const float *const *arranged, float *y, int64_t y_row)
{
    int64_t together = rows_together(w), rows;
    float lanes[MR_QUANT_ROWS * MR_QUANT_TOGETHER][16];

    for (int64_t j = j0; j < j1; j += rows) {
        rows = j1 - j < together ? j1 - j : together;
        for (int i = 0, now; i < m; i += now) {
            now = rows_alike(w, arranged + i, m - i);
            memset(lanes, 0, (size_t)now * MR_QUANT_TOGETHER * sizeof *lanes);
            for (int64_t k = 0, n; k < w->cols; k += n) {
                n = w->cols - k < MR_QUANT_SPAN ? w->cols - k : MR_QUANT_SPAN;
                span_dot(w, j, rows, k, n, now, arranged + i, lanes);
            }
            for (int r = 0; r < now; r++)
                quant_tier()->sums(lanes + r * MR_QUANT_TOGETHER, (int)rows,
                                   y + (i + r) * y_row + (j - j0));
        }
    }
}
