/* SPDX-License-Identifier: Apache-2.0
 *
 * fft_radix.h -- the butterflies, and the pass over a panel for each radix.
 *
 * Included by tier/fft.h alone.  Forward, natural order in and out.
 */

#define SQRT_HALF C(0.70710678118654752440)

INLINE void
dft2(Z *x, const lane *root)
{
    Z a = x[0];

    (void)root;
    x[0] = z_add(a, x[1]);
    x[1] = z_sub(a, x[1]);
}

INLINE void
dft4(Z *x, const lane *root)
{
    Z a = z_add(x[0], x[2]), b = z_sub(x[0], x[2]);
    Z c = z_add(x[1], x[3]), d = z_sub(x[1], x[3]);

    (void)root;
    x[0] = z_add(a, c);
    x[1] = z_sub_i(b, d);
    x[2] = z_sub(a, c);
    x[3] = z_add_i(b, d);
}

INLINE void
dft8(Z *x, const lane *root)
{
    Z even[4] = {x[0], x[2], x[4], x[6]}, odd[4] = {x[1], x[3], x[5], x[7]};
    Z t;

    dft4(even, root);
    dft4(odd, root);
    /* times (1 - i) / sqrt 2, -i, (-1 - i) / sqrt 2 */
    t = odd[1];
    odd[1] = (Z){(t.re + t.im) * SQRT_HALF, (t.im - t.re) * SQRT_HALF};
    t = odd[3];
    odd[3] = (Z){(t.im - t.re) * SQRT_HALF, -(t.re + t.im) * SQRT_HALF};
    x[0] = z_add(even[0], odd[0]);
    x[4] = z_sub(even[0], odd[0]);
    x[1] = z_add(even[1], odd[1]);
    x[5] = z_sub(even[1], odd[1]);
    x[2] = z_sub_i(even[2], odd[2]);
    x[6] = z_add_i(even[2], odd[2]);
    x[3] = z_add(even[3], odd[3]);
    x[7] = z_sub(even[3], odd[3]);
}

/* times exp(-2 pi i k / 16), k = 1 and 3 of an eighth: (c, -s), (s, -c) */
#define COS_16TH C(0.92387953251128675613)
#define SIN_16TH C(0.38268343236508977173)

/* Four transforms of four, twiddles, four across. */
INLINE void
dft16(Z *x, const lane *root)
{
    const R c = COS_16TH, s = SIN_16TH, h = SQRT_HALF;
    Z y[4][4], t;

#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            y[j][k] = x[j + 4 * k];
        dft4(y[j], root);
    }
    y[1][1] = z_mul(y[1][1], c, -s);
    y[1][3] = z_mul(y[1][3], s, -c);
    y[3][1] = z_mul(y[3][1], s, -c);
    y[3][3] = z_mul(y[3][3], -c, s);
    t = y[1][2];
    y[1][2] = (Z){(t.re + t.im) * h, (t.im - t.re) * h};
    t = y[3][2];
    y[3][2] = (Z){(t.im - t.re) * h, -(t.re + t.im) * h};
    t = y[2][1];
    y[2][1] = (Z){(t.re + t.im) * h, (t.im - t.re) * h};
    t = y[2][3];
    y[2][3] = (Z){(t.im - t.re) * h, -(t.re + t.im) * h};
    t = y[2][2];
    y[2][2] = (Z){t.im, -t.re};
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        Z z[4] = {y[0][k], y[1][k], y[2][k], y[3][k]};

        dft4(z, root);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            x[k + 4 * j] = z[j];
    }
}

/* An odd radix: with a_j = x_j + x_(r-j), b_j = x_j - x_(r-j),
 * y_k, y_(r-k) = x_0 + sum a_j cos(2 pi j k / r) -+ i sum b_j sin(...). */
INLINE void
dft_odd(Z *x, const lane *root, const int r)
{
    Z first = x[0], y[MR_FFT_MAX_RADIX];
    const int half = r / 2;

#pragma GCC unroll 3
    for (int j = 1; j <= half; j++) {
        Z a = x[j], b = x[r - j];

        x[j] = z_add(a, b);
        x[r - j] = z_sub(a, b);
    }
    y[0] = first;
#pragma GCC unroll 3
    for (int j = 1; j <= half; j++)
        y[0] = z_add(y[0], x[j]);
#pragma GCC unroll 3
    for (int k = 1; k <= half; k++) {
        Z even = first, odd = {C(0.0), C(0.0)};
        int at = 0;

#pragma GCC unroll 3
        for (int j = 1; j <= half; j++) {
            R c, s;

            at = at + k < r ? at + k : at + k - r;
            c = v_set(root[2 * at]);
            s = v_set(root[2 * at + 1]);
            even.re = multiply_add(x[j].re, c, even.re);
            even.im = multiply_add(x[j].im, c, even.im);
            odd.re = multiply_add(x[r - j].re, s, odd.re);
            odd.im = multiply_add(x[r - j].im, s, odd.im);
        }
        y[k] = z_sub_i(even, odd);
        y[r - k] = z_add_i(even, odd);
    }
#pragma GCC unroll 7
    for (int k = 0; k < r; k++)
        x[k] = y[k];
}

INLINE void
dft3(Z *x, const lane *root)
{
    dft_odd(x, root, 3);
}

INLINE void
dft5(Z *x, const lane *root)
{
    dft_odd(x, root, 5);
}

INLINE void
dft7(Z *x, const lane *root)
{
    dft_odd(x, root, 7);
}

/* Where a pass reads from or writes to: panels, or columns in memory whose
 * numbers are pairs, the real part first or second. */
enum { PANEL, PAIRS_THERE, PAIRS_SWAPPED };

INLINE Z
place_load(const lane *x, int h, const int lay)
{
    R a, b, even, odd;

    if (lay == PANEL)
        return z_load(x + h);
    a = v_load(x + 2 * h);
    b = v_load(x + 2 * h + N_LANES);
    even = SHUFFLE(a, b, EVEN, 0);
    odd = SHUFFLE(a, b, ODD, 0);
    return lay == PAIRS_THERE ? (Z){even, odd} : (Z){odd, even};
}

INLINE void
place_store(lane *y, int h, Z x, R scale, const int lay)
{
    R a, b;

    if (lay == PANEL) {
        z_store(y + h, x);
        return;
    }
    a = (lay == PAIRS_THERE ? x.re : x.im) * scale;
    b = (lay == PAIRS_THERE ? x.im : x.re) * scale;
    v_store(y + 2 * h, SHUFFLE(a, b, ZIP_LOW, 0));
    v_store(y + 2 * h + N_LANES, SHUFFLE(a, b, ZIP_HIGH, 0));
}

/* Either side of a pass: where its numbers are, how many reals apart. */
typedef struct pass_side {
    lane *at;
    int64_t step;
    int lay;
} pass_side;

typedef void dft_fn(Z *x, const lane *root);

/* One p: the s blocks that share its twiddles (w NULL: they are 1). */
INLINE void
pass_row(const mr_fft_pass *f, const pass_side *from, const pass_side *to,
         const lane *x, lane *y, const lane *w, R scale, const int r,
         dft_fn *dft, const int in, const int out, const bool turned)
{
    int64_t far = f->s * f->m * from->step, near = f->s * to->step;

    for (int64_t q = 0; q < f->s; q++, x += from->step, y += to->step)
        for (int h = 0; h < V; h += N_LANES) {
            Z z[16];

#pragma GCC unroll 16
            for (int j = 0; j < r; j++)
                z[j] = place_load(x + j * far, h, in);
            dft(z, f->root);
            place_store(y, h, z[0], scale, out);
#pragma GCC unroll 16
            for (int k = 1; k < r; k++) {
                if (turned)
                    z[k] =
                        z_mul(z[k], v_set(w[2 * k - 2]), v_set(w[2 * k - 1]));
                place_store(y + k * near, h, z[k], scale, out);
            }
        }
}

INLINE void
pass_of(const mr_fft_pass *f, const pass_side *from, const pass_side *to,
        lane scale, const int r, dft_fn *dft, const int in, const int out)
{
    const lane *w = f->w, *x = from->at;
    lane *y = to->at;
    R by = v_set(scale);

    pass_row(f, from, to, x, y, w, by, r, dft, in, out, false);
    for (int64_t p = 1; p < f->m; p++) {
        x += f->s * from->step;
        y += f->s * r * to->step;
        w += 2 * (r - 1);
        pass_row(f, from, to, x, y, w, by, r, dft, in, out, true);
    }
}

#define PASS(name, r, dft)                                                     \
    static void name(const mr_fft_pass *f, const lane *x, lane *y)             \
    {                                                                          \
        pass_side from = {(lane *)(uintptr_t)x, 2 * V, PANEL};                 \
        pass_side to = {y, 2 * V, PANEL};                                      \
                                                                               \
        pass_of(f, &from, &to, (lane)1, r, dft, PANEL, PANEL);                 \
    }

PASS(pass2, 2, dft2)
PASS(pass3, 3, dft3)
PASS(pass4, 4, dft4)
PASS(pass5, 5, dft5)
PASS(pass7, 7, dft7)
PASS(pass8, 8, dft8)
PASS(pass16, 16, dft16)

/* The same from or to columns in memory: there the first pass loads and the
 * last one stores, which saves the panel a trip through the caches. */
#define PASS_ENDS(name, r, dft)                                                \
    static void name##_ends(const mr_fft_pass *f, const pass_side *from,       \
                            const pass_side *to, lane scale)                   \
    {                                                                          \
        if (from->lay == PAIRS_THERE)                                          \
            pass_of(f, from, to, scale, r, dft, PAIRS_THERE, PANEL);           \
        else if (from->lay == PAIRS_SWAPPED)                                   \
            pass_of(f, from, to, scale, r, dft, PAIRS_SWAPPED, PANEL);         \
        else if (to->lay == PAIRS_THERE)                                       \
            pass_of(f, from, to, scale, r, dft, PANEL, PAIRS_THERE);           \
        else                                                                   \
            pass_of(f, from, to, scale, r, dft, PANEL, PAIRS_SWAPPED);         \
    }

PASS_ENDS(pass4, 4, dft4)
PASS_ENDS(pass8, 8, dft8)
PASS_ENDS(pass16, 16, dft16)

/* Any odd radix up to MR_FFT_MAX_RADIX. */
static void
pass_odd(const mr_fft_pass *f, const lane *x, lane *y)
{
    const int r = f->radix;
    int64_t far = f->s * f->m * 2 * V, near = f->s * 2 * V;

    for (int64_t p = 0; p < f->m; p++) {
        const lane *w = (const lane *)f->w + 2 * p * (r - 1);

        for (int64_t q = 0; q < f->s; q++)
            for (int h = 0; h < V; h += N_LANES) {
                const lane *from = x + (q + f->s * p) * 2 * V + h;
                lane *to = y + (q + f->s * r * p) * 2 * V + h;
                Z z[MR_FFT_MAX_RADIX];

                for (int j = 0; j < r; j++)
                    z[j] = z_load(from + j * far);
                dft_odd(z, f->root, r);
                z_store(to, z[0]);
                for (int k = 1; k < r; k++)
                    z_store(to + k * near, z_mul(z[k], v_set(w[2 * k - 2]),
                                                 v_set(w[2 * k - 1])));
            }
    }
}

static void
pass(const mr_fft_pass *f, const void *x, void *y)
{
    switch (f->radix) {
    case 2:
        pass2(f, x, y);
        break;
    case 3:
        pass3(f, x, y);
        break;
    case 4:
        pass4(f, x, y);
        break;
    case 5:
        pass5(f, x, y);
        break;
    case 7:
        pass7(f, x, y);
        break;
    case 8:
        pass8(f, x, y);
        break;
    case 16:
        pass16(f, x, y);
        break;
    default:
        pass_odd(f, x, y);
        break;
    }
}

/* Whole columns of numbers that are pairs. */
static bool
ends_fit(const mr_fft_pass *f, const mr_fft_lines *l)
{
    return (f->radix == 4 || f->radix == 8 || f->radix == 16) &&
           l->n_lanes == V && lines_way(l) == COLUMNS;
}

static void
pass_ends(const mr_fft_pass *f, const pass_side *from, const pass_side *to,
          lane scale)
{
    if (f->radix == 16)
        pass16_ends(f, from, to, scale);
    else if (f->radix == 8)
        pass8_ends(f, from, to, scale);
    else
        pass4_ends(f, from, to, scale);
}

static bool
pass_from(const mr_fft_pass *f, const mr_fft_lines *l, void *y)
{
    pass_side from = {l->line[0], l->step,
                      l->swap ? PAIRS_SWAPPED : PAIRS_THERE};
    pass_side to = {y, 2 * V, PANEL};

    if (l->n != f->radix * f->m * f->s || !ends_fit(f, l))
        return false;
    pass_ends(f, &from, &to, (lane)1);
    return true;
}

static bool
pass_to(const mr_fft_pass *f, const void *x, const mr_fft_lines *l,
        double scale)
{
    pass_side from = {(lane *)(uintptr_t)x, 2 * V, PANEL};
    pass_side to = {l->line[0], l->step, l->swap ? PAIRS_SWAPPED : PAIRS_THERE};

    if (l->n != f->radix * f->m * f->s || !ends_fit(f, l))
        return false;
    pass_ends(f, &from, &to, (lane)scale);
    return true;
}
