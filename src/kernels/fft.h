/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.h -- Fourier transforms of many lines at once, by instruction set.
 *
 * A *panel* holds V lines (lanes) side by side, V = 64 bytes of real numbers:
 * block j is the V real parts of number j, then the V imaginary parts, 128
 * bytes in all.  So every pass of a transform is arithmetic between whole
 * vectors, whatever the radix, and lanes never meet.  V does not depend on the
 * tier, nor do the order of operations and the places of fused multiply-adds:
 * the tiers with FMA give equal bits.
 *
 * All transforms here are forward, exp(-2 pi i j k / n), and not scaled.  The
 * inverse is the forward one with real and imaginary parts changed places
 * before and after, which loads and stores do at no cost.
 *
 * The caller (cpu/fft.c) owns plans, memory, threads and the choice of the
 * way.  "real" below is float or double, by the table.
 */
#ifndef MR_KERNELS_FFT_H
#define MR_KERNELS_FFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/tier/tier.h"

#define MR_FFT_BLOCK_BYTES 128
#define MR_FFT_MAX_LANES   16
/* Primes above go by Bluestein's algorithm. */
#define MR_FFT_MAX_RADIX  31
#define MR_FFT_MAX_PASSES 64

/* One pass of Stockham's algorithm, decimation in frequency: of m * radix
 * numbers, s transforms interleaved.  For p < m, q < s:
 *   y[q + s (radix p + k)] =
 *       w^(p k) sum over j of x[q + s (p + m j)] exp(-2 pi i j k / radix) */
typedef struct mr_fft_pass {
    int32_t radix;
    int64_t m, s;
    const void *w;    /* real pairs w^(p k), k = 1 ... radix - 1, for each p */
    const void *root; /* odd radices: pairs cos, sin of 2 pi j / radix */
} mr_fft_pass;

/* Lines in memory, as real numbers: number j of lane l has its real part at
 * line[l] + j * step and its imaginary part `im` reals further (0 for two
 * reals of a broadcast axis).  MR_FFT_NO_IM: it has none (0 when loaded,
 * dropped when stored). */
#define MR_FFT_NO_IM INT64_MIN

typedef struct mr_fft_lines {
    void *line[MR_FFT_MAX_LANES];
    int32_t n_lanes; /* those beyond are loaded as 0, and not stored */
    int64_t step, im;
    int64_t n; /* numbers that are there: loads give 0 beyond */
    bool half; /* and one more with a real part alone */
    bool swap; /* real and imaginary parts change places */
} mr_fft_lines;

/* Changes of places around a product. */
enum { MR_FFT_SWAP_IN = 1, MR_FFT_SWAP_OUT = 2 };

typedef struct mr_fft_tier {
    int32_t lanes; /* V */
    /* Numbers [0, n) of the lines to n blocks; the first n blocks, times
     * scale, to the lines. */
    void (*load)(void *panel, int64_t n, const mr_fft_lines *from);
    void (*store)(const mr_fft_lines *to, int64_t n, const void *panel,
                  double scale);
    void (*pass)(const mr_fft_pass *f, const void *x, void *y);
    /* The first pass, which loads, and the last of several, which scales and
     * stores; false, and nothing done, where lines do not lie so that it pays:
     * whole lines, lanes side by side. */
    bool (*pass_from)(const mr_fft_pass *f, const mr_fft_lines *from, void *y);
    bool (*pass_to)(const mr_fft_pass *f, const void *x, const mr_fft_lines *to,
                    double scale);
    /* y[j] = x[j] * w[j] for n blocks; w is real pairs */
    void (*multiply)(void *y, const void *x, const void *w, int64_t n,
                     int places);
    /* The transform of 2 h real numbers from that of the h complex ones they
     * are read as, h + 1 blocks; and back, ready for the inverse: real and
     * imaginary parts have changed places.  w: exp(-2 pi i k / (2 h)), k <= h /
     * 2.  x and y do not overlap. */
    void (*untangle)(void *y, const void *x, const void *w, int64_t h);
    void (*tangle)(void *y, const void *x, const void *w, int64_t h);
    /* In place: the n blocks of the conjugates of a transform of real numbers
     * whose first n / 2 + 1 blocks are there; n is odd. */
    void (*mirror)(void *y, int64_t n);
    /* To the panels t: number k of lane c of y, times fine[k][c] * coarse[k],
     * becomes lane k % V of block (k / V) * n + j0 + c. */
    void (*turn)(void *t, int64_t n, int64_t j0, int32_t n_lanes, const void *y,
                 int64_t n_numbers, const void *fine, const void *coarse);
    /* A line of dense pairs as a matrix of V rows of n2 numbers, n2 a multiple
     * of V: transforms down its columns, times w (for each V columns V blocks,
     * a row each), turned: n2 blocks, a row of the matrix a lane. */
    void (*row)(void *panel, const void *line, bool swap, int64_t n2,
                const void *w);

    /* ---- one line of real pairs, `step` reals between pairs, imaginary
     * parts `im` reals after the real ones */
    /* z[k] = x[k] * w[k]; places as above; dense pairs */
    void (*line_multiply)(void *z, const void *x, const void *w, int64_t k0,
                          int64_t k1, int places);
    /* In place, for the pairs (k, h - k) with k0 <= k < k1 <= h / 2 + 1. */
    void (*line_untangle)(void *z, int64_t step, const void *w, int64_t h,
                          int64_t k0, int64_t k1, double scale);
    /* z (dense) from x, whose numbers from n on are 0 */
    void (*line_tangle)(void *z, const void *x, int64_t step, int64_t n,
                        const void *w, int64_t h, int64_t k0, int64_t k1);
    void (*line_mirror)(void *z, const void *x, int64_t step, int64_t n,
                        int64_t length);
    /* dense pairs from a line (one lane), times w; and to a line, times w and
     * scale.  z[k] for k0 <= k < k1; zeros where the line has ended. */
    void (*line_load)(void *z, const mr_fft_lines *from, const void *w,
                      int64_t k0, int64_t k1);
    void (*line_store)(const mr_fft_lines *to, const void *z, const void *w,
                       int places, int64_t k0, int64_t k1, double scale);
} mr_fft_tier;

/* The tables of the tier in use: [0] float, [1] double. */
static inline const mr_fft_tier *
mr__fft_tier(bool is_double)
{
    return mr__tier()->fft[is_double];
}

/* Those of one tier, NULL where this machine cannot run it. */
static inline const mr_fft_tier *
mr__fft_of_tier(int id, bool is_double)
{
    return mr__tier_or_none(id)->fft[is_double];
}

#define MR_X(id, name)                                                         \
    extern const mr_fft_tier mr__fft_f32_##name, mr__fft_f64_##name;
MR_TIERS(MR_X)
#undef MR_X

#endif
