/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.h -- the passes of Fourier transforms over panels, for one real type.
 *
 * Included by fft32.c and fft64.c.  kernels/fft.h says what a panel is.  The
 * butterflies are in fft_radix.h, loads, stores and transposes in fft_move.h.
 */
#include "kernels/fft.h"

#include "kernels/tier/lanes.h"

/* A block: V real parts, V imaginary parts; PARTS vectors each. */
#define V     (64 / (MR_LANE_BITS / 8))
#define PARTS (V / N_LANES)

typedef struct Z {
    R re, im;
} Z;

INLINE Z
z_load(const lane *block)
{
    return (Z){v_load(block), v_load(block + V)};
}

INLINE void
z_store(lane *block, Z x)
{
    v_store(block, x.re);
    v_store(block + V, x.im);
}

INLINE Z
z_add(Z a, Z b)
{
    return (Z){a.re + b.re, a.im + b.im};
}

INLINE Z
z_sub(Z a, Z b)
{
    return (Z){a.re - b.re, a.im - b.im};
}

/* a - i b, a + i b */
INLINE Z
z_sub_i(Z a, Z b)
{
    return (Z){a.re + b.im, a.im - b.re};
}

INLINE Z
z_add_i(Z a, Z b)
{
    return (Z){a.re - b.im, a.im + b.re};
}

INLINE Z
z_mul(Z a, R re, R im)
{
    return (Z){multiply_add(a.re, re, -(a.im * im)),
               multiply_add(a.re, im, a.im * re)};
}

#include "kernels/tier/fft_move.h"
#include "kernels/tier/fft_radix.h"

/* ---- rows -----------------------------------------------------------------
 * V columns at a time: their transforms while they are in registers, and a
 * square that is turned. */

#if MR_LANE_BITS == 32
#define dft_lanes dft16
#else
#define dft_lanes dft8
#endif

INLINE void
row_square(lane *square, const lane *x, int64_t step, const lane *w,
           const int lay)
{
    for (int h = 0; h < V; h += N_LANES) {
        Z z[V];

#pragma GCC unroll 16
        for (int j = 0; j < V; j++)
            z[j] = place_load(x + j * step, h, lay);
        dft_lanes(z, NULL);
        z_store(square + h, z[0]);
#pragma GCC unroll 16
        for (int k = 1; k < V; k++) {
            Z by = z_load(w + k * 2 * V + h);

            z_store(square + k * 2 * V + h, z_mul(z[k], by.re, by.im));
        }
    }
}

INLINE void
row_of(lane *to, const lane *x, int64_t n2, const lane *w, const int lay)
{
    _Alignas(64) lane square[V * 2 * V];

    for (int64_t c = 0; c < n2; c += V, x += 2 * V, w += V * 2 * V) {
        row_square(square, x, 2 * n2, w, lay);
        for (int part = 0; part < 2 * V; part += V)
            square_turn(to + part, square + part, V);
        to += V * 2 * V;
    }
}

static void
row(void *panel, const void *line, bool swap, int64_t n2, const void *w)
{
    if (swap)
        row_of(panel, line, n2, w, PAIRS_SWAPPED);
    else
        row_of(panel, line, n2, w, PAIRS_THERE);
}

/* ---- products -------------------------------------------------------------
 */

INLINE Z
z_placed(Z x, int swap)
{
    return swap ? (Z){x.im, x.re} : x;
}

static void
multiply(void *y, const void *x, const void *w, int64_t n, int places)
{
    const lane *from = x, *by = w;
    lane *to = y;

    for (int64_t j = 0; j < n; j++, from += 2 * V, to += 2 * V) {
        R re = v_set(by[2 * j]), im = v_set(by[2 * j + 1]);

        for (int h = 0; h < V; h += N_LANES) {
            Z a = z_placed(z_load(from + h), places & MR_FFT_SWAP_IN);

            z_store(to + h,
                    z_placed(z_mul(a, re, im), places & MR_FFT_SWAP_OUT));
        }
    }
}

static void
line_multiply(void *z, const void *x, const void *w, int64_t k0, int64_t k1,
              int places)
{
    const lane *from = x, *by = w;
    lane *to = z;
    int in = places & MR_FFT_SWAP_IN ? 1 : 0;
    int out = places & MR_FFT_SWAP_OUT ? 1 : 0;

    for (int64_t k = k0; k < k1; k++) {
        lane re = from[2 * k + in], im = from[2 * k + 1 - in];
        lane c = by[2 * k], s = by[2 * k + 1];

        to[2 * k + out] = re * c - im * s;
        to[2 * k + 1 - out] = re * s + im * c;
    }
}

/* ---- real numbers ---------------------------------------------------------
 * With z[j] = x[2j] + i x[2j + 1] and Z its transform of length h, E and O
 * those of the even and the odd entries:
 *   E[k] = (Z[k] + conj Z[h - k]) / 2,  O[k] = (Z[k] - conj Z[h - k]) / 2i,
 *   X[k] = E[k] + w^k O[k],  X[h - k] = conj(E[k] - w^k O[k]).
 * Back: E[k] = X[k] + conj X[h - k], O[k] = (X[k] - conj X[h - k]) conj w^k,
 * Z[k] = E[k] + i O[k], Z[h - k] = conj(E[k] - i O[k]), twice too large, as
 * the transform of 2 h numbers is beside that of h. */

static void
untangle(void *y, const void *x, const void *w, int64_t h)
{
    const lane *from = x, *by = w;
    lane *to = y;

    for (int64_t k = 0; k <= h / 2; k++) {
        int64_t mirror = h - k;
        const lane *pa = from + k * 2 * V;
        const lane *pb = from + (k == 0 ? 0 : mirror) * 2 * V;
        R half = C(0.5), re = v_set(by[2 * k]), im = v_set(by[2 * k + 1]);

        for (int i = 0; i < V; i += N_LANES) {
            Z a = z_load(pa + i), b = z_load(pb + i);
            Z even = {(a.re + b.re) * half, (a.im - b.im) * half};
            Z odd = {(a.im + b.im) * half, (b.re - a.re) * half};
            Z far;

            odd = z_mul(odd, re, im);
            far = z_sub(even, odd);
            z_store(to + mirror * 2 * V + i, (Z){far.re, -far.im});
            if (k != mirror)
                z_store(to + k * 2 * V + i, z_add(even, odd));
        }
    }
}

static void
tangle(void *y, const void *x, const void *w, int64_t h)
{
    const lane *from = x, *by = w;
    lane *to = y;

    for (int64_t k = 0; k <= h / 2; k++) {
        int64_t mirror = h - k;
        const lane *pa = from + k * 2 * V, *pb = from + mirror * 2 * V;
        R re = v_set(by[2 * k]), im = v_set(-by[2 * k + 1]);

        for (int i = 0; i < V; i += N_LANES) {
            Z a = z_load(pa + i), b = z_load(pb + i), even, odd, far;

            if (k == 0) { /* whose imaginary parts do not count */
                a.im = C(0.0);
                b.im = C(0.0);
            }
            even = (Z){a.re + b.re, a.im - b.im};
            odd = z_mul((Z){a.re - b.re, a.im + b.im}, re, im);
            far = z_sub_i(even, odd);
            if (k > 0)
                z_store(to + mirror * 2 * V + i, (Z){-far.im, far.re});
            if (k != mirror)
                z_store(to + k * 2 * V + i, z_placed(z_add_i(even, odd), true));
        }
    }
}

static void
mirror(void *y, int64_t n)
{
    lane *at = y;

    for (int i = 0; i < V; i += N_LANES)
        v_store(at + V + i, C(0.0));
    for (int64_t k = 1; k <= n / 2; k++)
        for (int i = 0; i < V; i += N_LANES) {
            Z x = z_load(at + k * 2 * V + i);

            z_store(at + (n - k) * 2 * V + i, x);
            z_store(at + k * 2 * V + i, (Z){x.re, -x.im});
        }
}

static void
line_untangle(void *z, int64_t step, const void *w, int64_t h, int64_t k0,
              int64_t k1, double scale)
{
    const lane *by = w;
    lane *at = z, half = (lane)(0.5 * scale);

    for (int64_t k = k0; k < k1; k++) {
        lane *near = at + k * step, *far = at + (h - k) * step;
        const lane *mirror = k == 0 ? near : far;
        lane c = by[2 * k], s = by[2 * k + 1];
        lane even_re = (near[0] + mirror[0]) * half;
        lane even_im = (near[1] - mirror[1]) * half;
        lane odd_re = (near[1] + mirror[1]) * half;
        lane odd_im = (mirror[0] - near[0]) * half;
        lane re = odd_re * c - odd_im * s, im = odd_re * s + odd_im * c;

        near[0] = even_re + re;
        near[1] = even_im + im;
        far[0] = even_re - re;
        far[1] = im - even_im;
    }
}

static void
line_tangle(void *z, const void *x, int64_t step, int64_t n, const void *w,
            int64_t h, int64_t k0, int64_t k1)
{
    const lane *from = x, *by = w;
    lane *to = z;
    static const lane zero[2] = {0, 0};

    for (int64_t k = k0; k < k1; k++) {
        const lane *near = k < n ? from + k * step : zero;
        const lane *far = h - k < n ? from + (h - k) * step : zero;
        lane near_im = k > 0 ? near[1] : (lane)0;
        lane far_im = k > 0 ? far[1] : (lane)0;
        lane c = by[2 * k], s = -by[2 * k + 1];
        lane even_re = near[0] + far[0], even_im = near_im - far_im;
        lane odd_re = near[0] - far[0], odd_im = near_im + far_im;
        lane re = odd_re * c - odd_im * s, im = odd_re * s + odd_im * c;

        if (k > 0) {
            to[2 * (h - k)] = even_re + im;
            to[2 * (h - k) + 1] = re - even_im;
        }
        to[2 * k] = even_re - im;
        to[2 * k + 1] = even_im + re;
    }
}

/* z[0 ... length) from the numbers x[0 ... n), n <= length / 2 + 1; length is
 * odd. */
static void
line_mirror(void *z, const void *x, int64_t step, int64_t n, int64_t length)
{
    const lane *from = x;
    lane *to = z;

    for (int64_t k = 0; k <= length / 2; k++) {
        lane re = k < n ? from[k * step] : (lane)0;
        lane im = k < n && k > 0 ? from[k * step + 1] : (lane)0;

        to[2 * k] = re;
        to[2 * k + 1] = -im;
        if (k > 0) {
            to[2 * (length - k)] = re;
            to[2 * (length - k) + 1] = im;
        }
    }
}

/* ---- lines ----------------------------------------------------------------
 */

static void
line_load(void *z, const mr_fft_lines *f, const void *w, int64_t k0, int64_t k1)
{
    const lane *from = f->line[0], *by = w;
    lane *to = z;
    int swap = f->swap ? 1 : 0;

    for (int64_t k = k0; k < k1; k++) {
        lane part[2] = {0, 0};

        if (k < f->n + (f->half ? 1 : 0))
            part[swap] = from[k * f->step];
        if (k < f->n && f->im != MR_FFT_NO_IM)
            part[1 - swap] = from[k * f->step + f->im];
        to[2 * k] = part[0] * by[2 * k] - part[1] * by[2 * k + 1];
        to[2 * k + 1] = part[0] * by[2 * k + 1] + part[1] * by[2 * k];
    }
}

static void
line_store(const mr_fft_lines *f, const void *z, const void *w, int places,
           int64_t k0, int64_t k1, double scale)
{
    const lane *from = z, *by = w;
    lane *to = f->line[0], s = (lane)scale;
    int in = places & MR_FFT_SWAP_IN ? 1 : 0;

    for (int64_t k = k0; k < k1; k++) {
        lane re = from[2 * k + in], im = from[2 * k + 1 - in];
        lane part[2] = {(re * by[2 * k] - im * by[2 * k + 1]) * s,
                        (re * by[2 * k + 1] + im * by[2 * k]) * s};

        to[k * f->step] = part[f->swap ? 1 : 0];
        if (f->im != MR_FFT_NO_IM)
            to[k * f->step + f->im] = part[f->swap ? 0 : 1];
    }
}

const mr_fft_tier MR_TIER_SYM(MR_TABLE) = {
    .lanes = V,
    .load = panel_load,
    .store = panel_store,
    .pass = pass,
    .pass_from = pass_from,
    .pass_to = pass_to,
    .multiply = multiply,
    .untangle = untangle,
    .tangle = tangle,
    .mirror = mirror,
    .turn = turn,
    .row = row,
    .line_multiply = line_multiply,
    .line_untangle = line_untangle,
    .line_tangle = line_tangle,
    .line_mirror = line_mirror,
    .line_load = line_load,
    .line_store = line_store,
};
