/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c -- the register tiles of convolutions and the transforms of squares,
 * once per instruction set.
 *
 * 6 x 64 with 32 registers of 16 lanes, 6 x 16 with 16 of 8.  An element is a
 * chain of fused multiply-adds in the order of segments or positions, whatever
 * the tier.
 */
#include "kernels/window.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/part.h"

#if MR_TIER_ID == MR_TIER_AVX512
#define VECTORS 4
#else
#define VECTORS 2
#endif
#define ROWS MR_WINDOW_ROWS

_Static_assert(VECTORS *N_LANES <= MR_WINDOW_COLS, "panel too wide");

INLINE void
tap_add(R (*sum)[VECTORS], const float *const *a, int64_t p, const float *w,
        const int vectors)
{
    R b[VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        b[v] = v_load(w + v * N_LANES);
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++) {
        R y = v_set(a[i][p]);

#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[i][v] = multiply_add(y, b[v], sum[i][v]);
    }
}

/* Narrow tiles take some positions of a segment at a time: segments are short
 * and the processor mistakes where such loops end. */
INLINE void
taps_of(float *const *c, const float *const *x, int64_t at, int64_t segments,
        int64_t length, const float *w, int64_t n, bool add, const int vectors)
{
    const int64_t row = vectors * N_LANES;
    const int joined = vectors == 1 ? 4 : vectors == 2 ? 2 : 1;
    R sum[ROWS][VECTORS];

#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (R){0};
    for (int64_t s = 0; s < segments; s++, x += ROWS) {
        const float *a[ROWS];
        int64_t p = 0;

        if (!x[0]) {
            w += length * row;
            continue;
        }
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; i++)
            a[i] = x[i] + at;
        for (; p + joined <= length; p += joined, w += joined * row)
#pragma GCC unroll 4
            for (int j = 0; j < joined; j++)
                tap_add(sum, a, p + j, w + j * row, vectors);
        for (; p < length; p++, w += row)
            tap_add(sum, a, p, w, vectors);
    }
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            float *to = c[i] + v * N_LANES;
            int64_t left = n - v * N_LANES;

            store(to, add ? load(to, left) + sum[i][v] : sum[i][v], left);
        }
}

#if MR_TIER_ID == MR_TIER_AVX512
typedef float H __attribute__((vector_size(32)));

/* Up to half a vector of outputs: halves, of which two go where a whole one
 * does. */
static void
taps_half(float *const *c, const float *const *x, int64_t at, int64_t segments,
          int64_t length, const float *w, int64_t n, bool add)
{
    __mmask8 lanes = (__mmask8)((1U << n) - 1);
    H sum[ROWS];

#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++)
        sum[i] = (H){0};
    for (int64_t s = 0; s < segments; s++, x += ROWS, w += length * N_LANES) {
        const float *a[ROWS];

        if (!x[0])
            continue;
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; i++)
            a[i] = x[i] + at;
#pragma GCC unroll 4
        for (int64_t p = 0; p < length; p++) {
            H b = _mm256_loadu_ps(w + p * N_LANES);

#pragma GCC unroll 6
            for (int i = 0; i < ROWS; i++)
                sum[i] = _mm256_fmadd_ps(_mm256_set1_ps(a[i][p]), b, sum[i]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++)
        _mm256_mask_storeu_ps(
            c[i], lanes,
            add ? sum[i] + (H)_mm256_maskz_loadu_ps(lanes, c[i]) : sum[i]);
}
#endif

static void
taps(float *const *c, const float *const *x, int64_t at, int64_t segments,
     int64_t length, const float *w, int64_t n, bool add)
{
#if MR_TIER_ID == MR_TIER_AVX512
    if (n <= N_LANES / 2) {
        taps_half(c, x, at, segments, length, w, n, add);
        return;
    }
#endif
    switch ((n - 1) / N_LANES) {
    case 0:
        taps_of(c, x, at, segments, length, w, n, add, 1);
        break;
#if VECTORS > 2
    case 2:
        taps_of(c, x, at, segments, length, w, n, add, 3);
        break;
    case 3:
        taps_of(c, x, at, segments, length, w, n, add, 4);
        break;
#endif
    default:
        taps_of(c, x, at, segments, length, w, n, add, 2);
        break;
    }
}

/* Two groups, a vector each. */
INLINE void
pair_add(R (*sum)[2], const float *const *a, int64_t p, int64_t far,
         const float *w, int64_t w_apart)
{
    R b = v_load(w), d = v_load(w + w_apart);

#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++) {
        sum[i][0] = multiply_add(v_set(a[i][p]), b, sum[i][0]);
        sum[i][1] = multiply_add(v_set(a[i][far]), d, sum[i][1]);
    }
}

static void
taps_pair(float *const *c, const float *const *x, int64_t at, int64_t segments,
          int64_t length, const float *w, int64_t w_apart, int64_t n, bool add)
{
    R sum[ROWS][2];

#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++)
        sum[i][0] = sum[i][1] = (R){0};
    for (int64_t s = 0; s < segments; s++, x += ROWS) {
        const float *a[ROWS];
        int64_t p = 0, far = length;

        if (!x[0]) {
            w += length * N_LANES;
            continue;
        }
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; i++)
            a[i] = x[i] + at;
        for (; p + 4 <= length; p += 4, far += 4, w += 4 * N_LANES)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                pair_add(sum, a, p + j, far + j, w + j * N_LANES, w_apart);
        for (; p < length; p++, far++, w += N_LANES)
            pair_add(sum, a, p, far, w, w_apart);
    }
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *to = c[i] + v * n;

            store(to, add ? load(to, n) + sum[i][v] : sum[i][v], n);
        }
}

INLINE void
back_of(float *c, int64_t c_row, const mr_window_run *runs, int64_t n_runs,
        int64_t x_step, int64_t g_step, const int rows, const int vectors)
{
    R sum[ROWS][VECTORS];

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[i][v] = v_load(c + i * c_row + v * N_LANES);
    for (int64_t r = 0; r < n_runs; r++) {
        const float *x = runs[r].x, *g = runs[r].g;

        for (int64_t p = 0; p < runs[r].n; p++, x += x_step, g += g_step) {
            R b[VECTORS];

#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                b[v] = v_load(g + v * N_LANES);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                R y = v_set(x[i]);

#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    sum[i][v] = multiply_add(y, b[v], sum[i][v]);
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            v_store(c + i * c_row + v * N_LANES, sum[i][v]);
}

INLINE void
back_rows(float *c, int64_t c_row, const mr_window_run *runs, int64_t n_runs,
          int64_t x_step, int64_t g_step, int64_t n_rows, const int vectors)
{
    switch (n_rows) {
    case 6:
        back_of(c, c_row, runs, n_runs, x_step, g_step, 6, vectors);
        break;
    case 4:
        back_of(c, c_row, runs, n_runs, x_step, g_step, 4, vectors);
        break;
    case 3:
        back_of(c, c_row, runs, n_runs, x_step, g_step, 3, vectors);
        break;
    case 2:
        back_of(c, c_row, runs, n_runs, x_step, g_step, 2, vectors);
        break;
    case 1:
        back_of(c, c_row, runs, n_runs, x_step, g_step, 1, vectors);
        break;
    default:
        back_of(c, c_row, runs, n_runs, x_step, g_step, 5, vectors);
        break;
    }
}

static void
back(float *c, int64_t c_row, const mr_window_run *runs, int64_t n_runs,
     int64_t x_step, int64_t g_step, int64_t n_rows, int64_t n)
{
    switch ((n - 1) / N_LANES) {
    case 0:
        back_rows(c, c_row, runs, n_runs, x_step, g_step, n_rows, 1);
        break;
#if VECTORS > 2
    case 2:
        back_rows(c, c_row, runs, n_runs, x_step, g_step, n_rows, 3);
        break;
    case 3:
        back_rows(c, c_row, runs, n_runs, x_step, g_step, n_rows, 4);
        break;
#endif
    default:
        back_rows(c, c_row, runs, n_runs, x_step, g_step, n_rows, 2);
        break;
    }
}

/* One tap over its runs, `vectors` vectors of channels. */
INLINE void
deep_of(float *c, const mr_window_run *runs, int64_t n_runs, int64_t x_step,
        int64_t g_step, int64_t at, int64_t left, const int vectors)
{
    R sum[4];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        sum[v] = load(c + at + v * N_LANES, left - v * N_LANES);
    for (int64_t r = 0; r < n_runs; r++) {
        const float *x = runs[r].x, *g = runs[r].g;

        if (!x)
            continue;
        x += at;
        g += at;
        for (int64_t p = 0; p < runs[r].n; p++, x += x_step, g += g_step)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[v] = multiply_add(load(x + v * N_LANES, left - v * N_LANES),
                                      load(g + v * N_LANES, left - v * N_LANES),
                                      sum[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        store(c + at + v * N_LANES, sum[v], left - v * N_LANES);
}

static void
deep(float *c, int64_t c_row, const mr_window_run *runs, int64_t n_runs,
     int64_t x_step, int64_t g_step, int64_t n_taps, int64_t n)
{
    int64_t at = 0;

    for (; at + 4 * N_LANES <= n; at += 4 * N_LANES)
        for (int64_t t = 0; t < n_taps; t++)
            deep_of(c + t * c_row, runs + t * n_runs, n_runs, x_step, g_step,
                    at, 4 * N_LANES, 4);
    for (; at < n; at += N_LANES)
        for (int64_t t = 0; t < n_taps; t++)
            deep_of(c + t * c_row, runs + t * n_runs, n_runs, x_step, g_step,
                    at, n - at, 1);
}

/* ---- squares ---------------------------------------------------------------
 *
 * Along each axis, of inputs x, taps w and products m:
 *     x0 - x2, x1 + x2, x2 - x1, x1 - x3
 *     w0, (w0 + w1 + w2) / 2, (w0 - w1 + w2) / 2, w2
 *     m0 + m1 + m2, m1 - m2 - m3
 */
#define PARTS MR_SQUARE_PARTS

/* The largest numbers so far, lane by lane: of the four in the middle, and of
 * those around them. */
typedef struct sizes {
    R middle, around;
} sizes;

INLINE R
largest(R a, R b, R c, R d)
{
    return v_larger(v_larger(v_abs(a), v_abs(b)), v_larger(v_abs(c), v_abs(d)));
}

INLINE void
in_vector(float *to, int64_t apart, const float *const *x, int64_t at,
          int64_t left, sizes *most)
{
    R t[PARTS];

#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        R a = load(x[j] + at, left), b = load(x[4 + j] + at, left);
        R c = load(x[8 + j] + at, left), d = load(x[12 + j] + at, left);

        t[j] = a - c;
        t[4 + j] = b + c;
        t[8 + j] = c - b;
        t[12 + j] = b - d;
        if (j == 1 || j == 2) {
            most->middle = v_larger(most->middle, v_larger(v_abs(b), v_abs(c)));
            most->around = v_larger(most->around, v_larger(v_abs(a), v_abs(d)));
        } else {
            most->around = v_larger(most->around, largest(a, b, c, d));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i += 4) {
        float *row = to + i * apart + at;

        store(row, t[i] - t[i + 2], left);
        store(row + apart, t[i + 1] + t[i + 2], left);
        store(row + 2 * apart, t[i + 2] - t[i + 1], left);
        store(row + 3 * apart, t[i + 1] - t[i + 3], left);
    }
}

static bool
square_in(float *to, int64_t apart, const float *const *x, int64_t n)
{
    sizes most = {{0}, {0}};
    int64_t at = 0;
    R both;

    for (; at + N_LANES <= n; at += N_LANES)
        in_vector(to, apart, x, at, N_LANES, &most);
    if (at < n)
        in_vector(to, apart, x, at, n - at, &most);
    both = v_larger(v_lows(most.middle, most.around, N_LANES / 2),
                    v_highs(most.middle, most.around, N_LANES / 2));
#pragma GCC unroll 3
    for (int h = N_LANES / 4; h > 0; h /= 2)
        both = v_larger(both, v_up(both, h));
    return both[N_LANES / 2] <= both[0] * MR_SQUARE_RANGE;
}

static void
square_most(float *to, const float *const *x, int64_t n)
{
    for (int i = 0; i < PARTS; i++) {
        R most = {0};

        for (int64_t at = 0; at < n; at += N_LANES)
            most = v_larger(most, v_abs(load(x[i] + at, n - at)));
        for (int l = 0; l < N_LANES; l++)
            to[i] = most[l] > to[i] ? most[l] : to[i];
    }
}

/* Sixteen sums, whatever the lanes. */
static float
square_sum(const float *x, int64_t n)
{
    R sum[16 / N_LANES];
    float all[16];

    for (int v = 0; v < 16 / N_LANES; v++)
        sum[v] = (R){0};
    for (int64_t at = 0; at < n; at += 16)
        for (int v = 0; v < 16 / N_LANES; v++) {
            int64_t from = at + v * N_LANES;

            sum[v] += v_abs(load(x + from, n - from));
        }
    for (int v = 0; v < 16 / N_LANES; v++)
        v_store(all + v * N_LANES, sum[v]);
    for (int h = 8; h > 0; h /= 2)
        for (int i = 0; i < h; i++)
            all[i] += all[i + h];
    return all[0];
}

INLINE void
weigh_vector(float *to, int64_t apart, const float *const *w, int64_t at,
             int64_t left)
{
    R t[4][3], half = v_set(0.5F);

#pragma GCC unroll 3
    for (int j = 0; j < 3; j++) {
        R a = load(w[j] + at, left), b = load(w[3 + j] + at, left);
        R c = load(w[6 + j] + at, left);
        R ends = (a + c) * half, middle = b * half;

        t[0][j] = a;
        t[1][j] = ends + middle;
        t[2][j] = ends - middle;
        t[3][j] = c;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        float *row = to + 4 * i * apart + at;
        R ends = (t[i][0] + t[i][2]) * half, middle = t[i][1] * half;

        store(row, t[i][0], left);
        store(row + apart, ends + middle, left);
        store(row + 2 * apart, ends - middle, left);
        store(row + 3 * apart, t[i][2], left);
    }
}

static void
square_weigh(float *to, int64_t apart, const float *const *w, int64_t n)
{
    for (int64_t at = 0; at < n; at += N_LANES)
        weigh_vector(to, apart, w, at, n - at);
}

/* Adds 0 to `wrong` where outputs are finite, else what is not a number. */
INLINE R
out_vector(float *const *to, const float *from, int64_t apart, int64_t at,
           int64_t left, R wrong)
{
    R s[2][4];

#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const float *m = from + j * apart + at;
        R b = load(m + 4 * apart, left), c = load(m + 8 * apart, left);

        s[0][j] = load(m, left) + b + c;
        s[1][j] = b - c - load(m + 12 * apart, left);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        R y = s[i][0] + s[i][1] + s[i][2], z = s[i][1] - s[i][2] - s[i][3];

        store(to[2 * i] + at, y, left);
        store(to[2 * i + 1] + at, z, left);
        wrong = multiply_add(y, (R){0}, wrong);
        wrong = multiply_add(z, (R){0}, wrong);
    }
    return wrong;
}

static bool
square_out(float *const *to, const float *from, int64_t apart, int64_t n)
{
    R wrong = {0};
    int64_t at = 0;

    for (; at + N_LANES <= n; at += N_LANES)
        wrong = out_vector(to, from, apart, at, N_LANES, wrong);
    if (at < n)
        wrong = out_vector(to, from, apart, at, n - at, wrong);
    return !m_any(v_ne(wrong, wrong));
}

const mr_window_tier MR_TIER_SYM(mr__window_tier) = {
    .lanes = N_LANES,
    .cols = VECTORS * N_LANES,
    .taps = taps,
    .taps_pair = taps_pair,
    .back = back,
    .deep = deep,
    .square_in = square_in,
    .square_most = square_most,
    .square_sum = square_sum,
    .square_weigh = square_weigh,
    .square_out = square_out,
};
