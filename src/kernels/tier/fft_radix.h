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

/* One p: the s blocks that share its twiddles (w NULL: they are 1). */
#define PASS(name, r, dft)                                                     \
    INLINE void name##_row(const mr_fft_pass *f, const lane *restrict x,       \
                           lane *restrict y, const lane *w, const bool turned) \
    {                                                                          \
        int64_t far = f->s * f->m * 2 * V, near = f->s * 2 * V;                \
        const lane *root = f->root;                                            \
                                                                               \
        for (int64_t q = 0; q < f->s; q++, x += 2 * V, y += 2 * V)             \
            for (int h = 0; h < V; h += N_LANES) {                             \
                Z z[r];                                                        \
                                                                               \
                _Pragma("GCC unroll 8") for (int j = 0; j < (r); j++) z[j] =   \
                    z_load(x + j * far + h);                                   \
                dft(z, root);                                                  \
                z_store(y + h, z[0]);                                          \
                _Pragma("GCC unroll 8") for (int k = 1; k < (r); k++)          \
                {                                                              \
                    if (turned)                                                \
                        z[k] = z_mul(z[k], v_set(w[2 * k - 2]),                \
                                     v_set(w[2 * k - 1]));                     \
                    z_store(y + k * near + h, z[k]);                           \
                }                                                              \
            }                                                                  \
    }                                                                          \
                                                                               \
    static void name(const mr_fft_pass *f, const lane *x, lane *y)             \
    {                                                                          \
        const lane *w = f->w;                                                  \
                                                                               \
        name##_row(f, x, y, w, false);                                         \
        for (int64_t p = 1; p < f->m; p++) {                                   \
            w += 2 * ((r)-1);                                                  \
            name##_row(f, x + p * f->s * 2 * V, y + p * f->s * (r)*2 * V, w,   \
                       true);                                                  \
        }                                                                      \
    }

PASS(pass2, 2, dft2)
PASS(pass3, 3, dft3)
PASS(pass4, 4, dft4)
PASS(pass5, 5, dft5)
PASS(pass7, 7, dft7)
PASS(pass8, 8, dft8)

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
    default:
        pass_odd(f, x, y);
        break;
    }
}
