/* SPDX-License-Identifier: Apache-2.0
 *
 * fft_move.h -- numbers between memory and panels, and from one panel to the
 * panels of the next step.
 *
 * Included by tier/fft.h alone.  Four ways for a load or a store, by where the
 * lanes lie: complex columns (lanes adjacent), complex rows (numbers
 * adjacent: transposed in registers), real columns, anything.
 */

/* ---- shuffles -------------------------------------------------------------
 * Lane i of a result by macros f(i, d), as constants for the compiler. */
#if N_LANES == 16
#define EACH_LANE(f, d)                                                        \
    f(0, d), f(1, d), f(2, d), f(3, d), f(4, d), f(5, d), f(6, d), f(7, d),    \
        f(8, d), f(9, d), f(10, d), f(11, d), f(12, d), f(13, d), f(14, d),    \
        f(15, d)
#elif N_LANES == 8
#define EACH_LANE(f, d)                                                        \
    f(0, d), f(1, d), f(2, d), f(3, d), f(4, d), f(5, d), f(6, d), f(7, d)
#elif N_LANES == 4
#define EACH_LANE(f, d) f(0, d), f(1, d), f(2, d), f(3, d)
#else
#define EACH_LANE(f, d) f(0, d), f(1, d)
#endif
#define SHUFFLE(a, b, f, d) __builtin_shufflevector(a, b, EACH_LANE(f, d))

/* Transposition by halves: of lanes whose number has bit d, and of pairs. */
#define LOW(i, d)       (((i) & (d)) ? N_LANES + (i) - (d) : (i))
#define HIGH(i, d)      (((i) & (d)) ? N_LANES + (i) : (i) + (d))
#define PAIR_LOW(i, d)  LOW(i, 2 * (d))
#define PAIR_HIGH(i, d) HIGH(i, 2 * (d))
/* a0 a1 ... b0 b1 ... to and from a0 b0 a1 b1 ... */
#define EVEN(i, d)     (2 * (i))
#define ODD(i, d)      (2 * (i) + 1)
#define ZIP_LOW(i, d)  (((i)&1) * N_LANES + (i) / 2)
#define ZIP_HIGH(i, d) (((i)&1) * N_LANES + N_LANES / 2 + (i) / 2)

#define STAGE(r, n, d, low, high)                                              \
    _Pragma("GCC unroll 16") for (int i_ = 0; i_ < (n); i_++) if (!(i_ & (d))) \
    {                                                                          \
        R a_ = (r)[i_], b_ = (r)[i_ + (d)];                                    \
                                                                               \
        (r)[i_] = SHUFFLE(a_, b_, low, d);                                     \
        (r)[i_ + (d)] = SHUFFLE(a_, b_, high, d);                              \
    }

/* N_LANES vectors of lanes. */
INLINE void
transpose_lanes(R *r)
{
    STAGE(r, N_LANES, 1, LOW, HIGH)
#if N_LANES > 2
    STAGE(r, N_LANES, 2, LOW, HIGH)
#endif
#if N_LANES > 4
    STAGE(r, N_LANES, 4, LOW, HIGH)
#endif
#if N_LANES > 8
    STAGE(r, N_LANES, 8, LOW, HIGH)
#endif
}

/* PAIRS vectors of pairs. */
#define PAIRS (N_LANES / 2)
INLINE void
transpose_pairs(R *r)
{
    (void)r;
#if PAIRS > 1
    STAGE(r, PAIRS, 1, PAIR_LOW, PAIR_HIGH)
#endif
#if PAIRS > 2
    STAGE(r, PAIRS, 2, PAIR_LOW, PAIR_HIGH)
#endif
#if PAIRS > 4
    STAGE(r, PAIRS, 4, PAIR_LOW, PAIR_HIGH)
#endif
}

/* ---- where lanes lie ------------------------------------------------------
 */
typedef enum way { COLUMNS, ROWS, REAL_COLUMNS, ANYHOW } way;

static way
lines_way(const mr_fft_lines *f)
{
    const lane *first = f->line[0];
    bool pairs = true, reals = true;

    for (int l = 1; l < f->n_lanes; l++) {
        pairs = pairs && (const lane *)f->line[l] == first + 2 * l;
        reals = reals && (const lane *)f->line[l] == first + l;
    }
    if (f->im == 1 && f->step == 2 && (f->n_lanes == 1 || !pairs))
        return ROWS;
    if (f->im == 1 && pairs)
        return COLUMNS;
    return f->im != 1 && reals ? REAL_COLUMNS : ANYHOW;
}

INLINE R
load_some(const lane *p, int64_t left)
{
    if (left >= N_LANES)
        return v_load(p);
    return left > 0 ? v_load_n(p, left) : C(0.0);
}

INLINE void
store_some(lane *p, R x, int64_t left)
{
    if (left >= N_LANES)
        v_store(p, x);
    else if (left > 0)
        v_store_n(p, x, left);
}

INLINE void
block_store(lane *block, Z x, bool swap)
{
    z_store(block, swap ? (Z){x.im, x.re} : x);
}

INLINE Z
block_load(const lane *block, R scale, bool swap)
{
    Z x = z_load(block);

    x = (Z){x.re * scale, x.im * scale};
    return swap ? (Z){x.im, x.re} : x;
}

/* ---- loads ----------------------------------------------------------------
 */

INLINE void
load_columns(lane *to, const mr_fft_lines *f, int64_t n, const bool whole)
{
    const lane *from = f->line[0];

    for (int64_t j = 0; j < n; j++, to += 2 * V, from += f->step)
        for (int h = 0; h < V; h += N_LANES) {
            int64_t left = whole ? 2 * V : 2 * ((int64_t)f->n_lanes - h);
            R a = load_some(from + 2 * h, left);
            R b = load_some(from + 2 * h + N_LANES, left - N_LANES);

            block_store(to + h,
                        (Z){SHUFFLE(a, b, EVEN, 0), SHUFFLE(a, b, ODD, 0)},
                        f->swap);
        }
}

static void
load_real_columns(lane *to, const mr_fft_lines *f, int64_t n)
{
    const lane *from = f->line[0];

    for (int64_t j = 0; j < n; j++, to += 2 * V, from += f->step)
        for (int h = 0; h < V; h += N_LANES) {
            int64_t left = f->n_lanes - h;
            Z x = {load_some(from + h, left), C(0.0)};

            if (f->im != MR_FFT_NO_IM)
                x.im = load_some(from + f->im + h, left);
            block_store(to + h, x, f->swap);
        }
}

/* PAIRS numbers from the j-th on of lanes h ... h + N_LANES - 1. */
INLINE void
load_tile(lane *to, const mr_fft_lines *f, int64_t j, int h, int64_t left,
          const bool whole)
{
    R a[PAIRS], b[PAIRS];

#pragma GCC unroll 8
    for (int i = 0; i < PAIRS; i++) {
        int l = h + i, m = h + PAIRS + i;

        a[i] = whole || l < f->n_lanes
                   ? load_some((const lane *)f->line[l] + 2 * j,
                               whole ? N_LANES : 2 * left)
                   : C(0.0);
        b[i] = whole || m < f->n_lanes
                   ? load_some((const lane *)f->line[m] + 2 * j,
                               whole ? N_LANES : 2 * left)
                   : C(0.0);
    }
    transpose_pairs(a);
    transpose_pairs(b);
#pragma GCC unroll 8
    for (int i = 0; i < PAIRS; i++)
        if (whole || i < left)
            block_store(
                to + (j + i) * 2 * V + h,
                (Z){SHUFFLE(a[i], b[i], EVEN, 0), SHUFFLE(a[i], b[i], ODD, 0)},
                f->swap);
}

static void
load_rows(lane *to, const mr_fft_lines *f, int64_t n)
{
    int64_t whole = f->n_lanes == V ? n - n % PAIRS : 0;

    for (int h = 0; h < V; h += N_LANES) {
        for (int64_t j = 0; j < whole; j += PAIRS)
            load_tile(to, f, j, h, PAIRS, true);
        for (int64_t j = whole; j < n; j += PAIRS)
            load_tile(to, f, j, h, n - j, false);
    }
}

/* Numbers j0 <= j < j1; the imaginary parts of reals alone are 0. */
static void
load_anyhow(lane *to, const mr_fft_lines *f, int64_t j0, int64_t j1, int64_t im)
{
    int re_at = f->swap ? V : 0;

    for (int64_t j = j0; j < j1; j++) {
        lane *block = to + j * 2 * V;

        for (int l = 0; l < V; l++) {
            const lane *x =
                l < f->n_lanes ? (const lane *)f->line[l] + j * f->step : NULL;

            block[re_at + l] = x ? x[0] : (lane)0;
            block[V - re_at + l] = x && im != MR_FFT_NO_IM ? x[im] : (lane)0;
        }
    }
}

static void
panel_load(void *panel, int64_t n, const mr_fft_lines *f)
{
    lane *to = panel;
    int64_t there = f->n < n ? f->n : n;

    switch (lines_way(f)) {
    case COLUMNS:
        if (f->n_lanes == V)
            load_columns(to, f, there, true);
        else
            load_columns(to, f, there, false);
        break;
    case ROWS:
        load_rows(to, f, there);
        break;
    case REAL_COLUMNS:
        load_real_columns(to, f, there);
        break;
    case ANYHOW:
        load_anyhow(to, f, 0, there, f->im);
        break;
    }
    if (f->half && there < n) {
        load_anyhow(to, f, there, there + 1, MR_FFT_NO_IM);
        there++;
    }
    if (there < n)
        memset(to + there * 2 * V, 0, (size_t)(n - there) * 2 * V * sizeof *to);
}

/* ---- stores ---------------------------------------------------------------
 */

INLINE void
store_columns(const mr_fft_lines *f, int64_t n, const lane *from, R scale,
              const bool whole)
{
    lane *to = f->line[0];

    for (int64_t j = 0; j < n; j++, from += 2 * V, to += f->step)
        for (int h = 0; h < V; h += N_LANES) {
            int64_t left = whole ? 2 * V : 2 * ((int64_t)f->n_lanes - h);
            Z x = block_load(from + h, scale, f->swap);

            store_some(to + 2 * h, SHUFFLE(x.re, x.im, ZIP_LOW, 0), left);
            store_some(to + 2 * h + N_LANES, SHUFFLE(x.re, x.im, ZIP_HIGH, 0),
                       left - N_LANES);
        }
}

static void
store_real_columns(const mr_fft_lines *f, int64_t n, const lane *from, R scale)
{
    lane *to = f->line[0];

    for (int64_t j = 0; j < n; j++, from += 2 * V, to += f->step)
        for (int h = 0; h < V; h += N_LANES) {
            int64_t left = f->n_lanes - h;
            Z x = block_load(from + h, scale, f->swap);

            store_some(to + h, x.re, left);
            if (f->im != MR_FFT_NO_IM)
                store_some(to + f->im + h, x.im, left);
        }
}

INLINE void
store_tile(const mr_fft_lines *f, int64_t j, int h, int64_t left,
           const lane *from, R scale, const bool whole)
{
    R a[PAIRS], b[PAIRS];

#pragma GCC unroll 8
    for (int i = 0; i < PAIRS; i++) {
        Z x = {C(0.0), C(0.0)};

        if (whole || i < left)
            x = block_load(from + (j + i) * 2 * V + h, scale, f->swap);
        a[i] = SHUFFLE(x.re, x.im, ZIP_LOW, 0);
        b[i] = SHUFFLE(x.re, x.im, ZIP_HIGH, 0);
    }
    transpose_pairs(a);
    transpose_pairs(b);
#pragma GCC unroll 8
    for (int i = 0; i < PAIRS; i++) {
        int l = h + i, m = h + PAIRS + i;

        if (whole || l < f->n_lanes)
            store_some((lane *)f->line[l] + 2 * j, a[i],
                       whole ? N_LANES : 2 * left);
        if (whole || m < f->n_lanes)
            store_some((lane *)f->line[m] + 2 * j, b[i],
                       whole ? N_LANES : 2 * left);
    }
}

static void
store_rows(const mr_fft_lines *f, int64_t n, const lane *from, R scale)
{
    int64_t whole = f->n_lanes == V ? n - n % PAIRS : 0;

    for (int h = 0; h < V; h += N_LANES) {
        for (int64_t j = 0; j < whole; j += PAIRS)
            store_tile(f, j, h, PAIRS, from, scale, true);
        for (int64_t j = whole; j < n; j += PAIRS)
            store_tile(f, j, h, n - j, from, scale, false);
    }
}

static void
store_anyhow(const mr_fft_lines *f, int64_t n, const lane *from, lane scale)
{
    int re_at = f->swap ? V : 0;

    for (int64_t j = 0; j < n; j++, from += 2 * V)
        for (int l = 0; l < f->n_lanes; l++) {
            lane *x = (lane *)f->line[l] + j * f->step;

            x[0] = from[re_at + l] * scale;
            if (f->im != MR_FFT_NO_IM)
                x[f->im] = from[V - re_at + l] * scale;
        }
}

static void
panel_store(const mr_fft_lines *f, int64_t n, const void *panel, double scale)
{
    R by = v_set((lane)scale);

    switch (lines_way(f)) {
    case COLUMNS:
        if (f->n_lanes == V)
            store_columns(f, n, panel, by, true);
        else
            store_columns(f, n, panel, by, false);
        break;
    case ROWS:
        store_rows(f, n, panel, by);
        break;
    case REAL_COLUMNS:
        store_real_columns(f, n, panel, by);
        break;
    case ANYHOW:
        store_anyhow(f, n, panel, (lane)scale);
        break;
    }
}

/* ---- from columns to rows -------------------------------------------------
 */

/* V numbers from k on, times their twiddles; zeros beyond. */
static void
turn_twiddle(lane *out, const lane *y, int64_t k, int64_t n_numbers,
             const lane *fine, const lane *coarse)
{
    for (int i = 0; i < V; i++, k++, out += 2 * V) {
        R re, im;

        if (k >= n_numbers) {
            memset(out, 0, 2 * V * sizeof *out);
            continue;
        }
        re = v_set(coarse[2 * k]);
        im = v_set(coarse[2 * k + 1]);
        for (int h = 0; h < V; h += N_LANES) {
            Z w = z_mul(z_load(fine + k * 2 * V + h), re, im);

            z_store(out + h, z_mul(z_load(y + k * 2 * V + h), w.re, w.im));
        }
    }
}

/* V blocks' parts; of `count` of their lanes each becomes a block's part. */
INLINE void
square_turn(lane *to, const lane *square, int32_t count)
{
    for (int c = 0; c < count; c += N_LANES)
        for (int i = 0; i < V; i += N_LANES) {
            R r[N_LANES];

#pragma GCC unroll 16
            for (int q = 0; q < N_LANES; q++)
                r[q] = v_load(square + (i + q) * 2 * V + c);
            transpose_lanes(r);
#pragma GCC unroll 16
            for (int q = 0; q < N_LANES; q++)
                if (c + q < count)
                    v_store(to + (c + q) * 2 * V + i, r[q]);
        }
}

static void
turn(void *t, int64_t n, int64_t j0, int32_t n_lanes, const void *y,
     int64_t n_numbers, const void *fine, const void *coarse)
{
    _Alignas(64) lane square[V * 2 * V];

    for (int64_t k = 0; k < n_numbers; k += V) {
        lane *to = (lane *)t + (k / V * n + j0) * 2 * V;

        turn_twiddle(square, y, k, n_numbers, fine, coarse);
        for (int part = 0; part < 2 * V; part += V)
            square_turn(to + part, square + part, n_lanes);
    }
}
