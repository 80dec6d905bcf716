/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.c -- Fourier transforms beside the sum that defines them, in long
 * double; layouts, lengths that crop and fill, several axes; the cache of
 * plans; overlapping frames; equal bits in the tiers with FMA.
 */
#include "cpu/kernel_run.h"

#include "base/alloc.h"
#include "kernels/fft.h"
#include "kernels/tier/tier.h"
#include "marram/compile.h"

static const long double TWO_PI = 6.283185307179586476925286766559005768L;

/* Numbers of [-1, 1) without pattern. */
static void
arr_noise(arr *x, uint64_t seed)
{
    for (int64_t i = 0; i < x->view.size; i++) {
        double part[2];

        for (int k = 0; k < 2; k++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            part[k] = (double)(int64_t)(seed >> 11) * 0x1p-52 - 1.0;
        }
        arr_set_complex(x, i, part[0], part[1]);
    }
}

typedef struct sum {
    long double re, im;
} sum;

/* The transform of length n of line (k0, stride): by definition. */
typedef struct definition {
    int64_t n;
    sum *root; /* exp(-2 pi i k / n) */
} definition;

static definition
definition_new(int64_t n)
{
    definition d = {n, malloc((size_t)n * sizeof *d.root)};

    assert_non_null(d.root);
    for (int64_t k = 0; k < n; k++) {
        d.root[k].re = cosl(TWO_PI * (long double)k / (long double)n);
        d.root[k].im = -sinl(TWO_PI * (long double)k / (long double)n);
    }
    return d;
}

static sum
defined(const definition *d, const sum *x, int64_t k, bool inverse)
{
    sum s = {0, 0};

    for (int64_t j = 0, at = 0; j < d->n; j++) {
        long double c = d->root[at].re;
        long double w = inverse ? -d->root[at].im : d->root[at].im;

        s.re += x[j].re * c - x[j].im * w;
        s.im += x[j].re * w + x[j].im * c;
        at += k;
        at -= at >= d->n ? d->n : 0;
    }
    return s;
}

static double
scale_of(int64_t scale, int64_t n)
{
    return scale == MR_FFT_UNSCALED ? 1.0
           : scale == MR_FFT_ORTHO  ? 1.0 / sqrt((double)n)
                                    : 1.0 / (double)n;
}

/* A line of the input of a (rows, m, cols) array as the n numbers that are
 * transformed. */
static void
line_read(const arr *x, uint16_t op, int64_t row, int64_t col, int64_t n,
          sum *to)
{
    int64_t m = x->dim[1], cols = x->dim[2];
    int64_t count = op == MR_OP_FFT_C2R ? n / 2 + 1 : n;

    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t j = 0; j < count && j < m; j++) {
        mr_c128 v = arr_complex(x, (row * m + j) * cols + col);

        to[j] = (sum){v.re, op == MR_OP_FFT_R2C ? 0.0 : v.im};
        if (op != MR_OP_FFT_C2R)
            continue;
        if (j == 0 || 2 * j == n)
            to[j].im = 0;
        else
            to[n - j] = (sum){to[j].re, -to[j].im};
    }
}

/* Root mean square of the error of a line, relative. */
static double
line_error(const arr *out, const definition *d, const sum *x, uint16_t op,
           int64_t row, int64_t col, const mr_fft_params *p)
{
    int64_t m = out->dim[1], cols = out->dim[2];
    long double off = 0, size = 0;

    for (int64_t k = 0; k < m; k++) {
        mr_c128 got = arr_complex(out, (row * m + k) * cols + col);
        sum want = defined(d, x, k, p->inverse || op == MR_OP_FFT_C2R);
        long double s = scale_of(p->scale, d->n);

        want.re *= s;
        want.im *= op == MR_OP_FFT_C2R ? 0 : s;
        off += (got.re - want.re) * (got.re - want.re) +
               (got.im - want.im) * (got.im - want.im);
        size += want.re * want.re + want.im * want.im;
    }
    return (double)sqrtl(off / (size > 0 ? size : 1));
}

typedef struct fft_case {
    uint16_t op;
    bool wide;
    layout how;
    int64_t rows, m, cols; /* of the input; along the middle axis */
    mr_fft_params p;
} fft_case;

static void
case_check(const fft_case *c)
{
    int64_t n = c->p.n != MR_INT_NONE    ? c->p.n
                : c->op == MR_OP_FFT_C2R ? 2 * (c->m - 1)
                                         : c->m;
    bool from_real = c->op == MR_OP_FFT_R2C, to_real = c->op == MR_OP_FFT_C2R;
    mr_dtype real = c->wide ? MR_FLOAT64 : MR_FLOAT32;
    mr_dtype complex = c->wide ? MR_COMPLEX128 : MR_COMPLEX64;
    arr *x = ARR(from_real ? real : complex, c->how, c->rows, c->m, c->cols);
    arr *out = ARR(to_real ? real : complex, PLAIN, c->rows,
                   from_real ? n / 2 + 1 : n, c->cols);
    definition d = definition_new(n);
    sum *line = malloc((size_t)n * sizeof *line);
    double bound = c->wide ? 2e-15 : 1e-6;

    assert_non_null(line);
    arr_noise(x, (uint64_t)(c->m * 31 + c->rows));
    assert_int_equal(RUN(c->op, &c->p, out, x), MR_OK);
    for (int64_t row = 0; row<c->rows; row += c->rows> 1 ? c->rows - 1 : 1)
        for (int64_t col = 0;
             col<c->cols; col += c->cols> 1 ? c->cols - 1 : 1) {
            double e;

            line_read(x, c->op, row, col, n, line);
            e = line_error(out, &d, line, c->op, row, col, &c->p);
            if (!(e < bound))
                fail_msg("%d: length %lld of %lld, %lld x %lld, layout %d: "
                         "error %g",
                         (int)c->op, (long long)n, (long long)c->m,
                         (long long)c->rows, (long long)c->cols, (int)c->how,
                         e);
        }
    free(line);
    free(d.root);
    arr_free(x);
    arr_free(out);
}

/* All operators, both precisions, at a length. */
static void
length_check(int64_t n, int64_t rows, int64_t cols, layout how)
{
    for (int wide = 0; wide < 2; wide++) {
        fft_case c = {MR_OP_FFT_C2C,
                      wide,
                      how,
                      rows,
                      n,
                      cols,
                      {2, MR_INT_NONE, MR_FFT_ORTHO, 0}};

        case_check(&c);
        c.p.inverse = true;
        c.p.scale = MR_FFT_MEAN;
        case_check(&c);
        c.p = (mr_fft_params){2, MR_INT_NONE, MR_FFT_UNSCALED, false};
        c.op = MR_OP_FFT_R2C;
        case_check(&c);
        c.op = MR_OP_FFT_C2R;
        c.m = n / 2 + 1;
        c.p.n = n;
        case_check(&c);
    }
}

static void
fft__is_the_defined_sum_for_small_lengths(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 64; n++) {
        length_check(n, 1, 1, PLAIN);
        length_check(n, 35, 1, PLAIN);
        length_check(n, 2, 19, PLAIN);
        length_check(n, 3, 3, PLAIN);
    }
}

static void
fft__is_the_defined_sum_for_primes_and_powers(void **state)
{
    static const int64_t lengths[] = {97,     251, 1009, 2 * 509, 37 * 41,
                                      5 * 97, 128, 256,  512,     1024,
                                      1000,   768, 320,  2048};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        length_check(lengths[i], 1, 1, PLAIN);
        length_check(lengths[i], 17, 1, PLAIN);
        length_check(lengths[i], 1, 9, PLAIN);
    }
    for (int wide = 0; wide < 2; wide++)
        case_check(&(fft_case){wide ? MR_OP_FFT_R2C : MR_OP_FFT_C2C,
                               wide,
                               PLAIN,
                               1,
                               7919,
                               1,
                               {2, MR_INT_NONE, MR_FFT_UNSCALED, false}});
}

static void
fft__takes_any_layout(void **state)
{
    static const int64_t lengths[] = {1, 5, 16, 45, 100, 256, 331};

    (void)state;
    for (int how = 0; how < N_LAYOUTS; how++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            length_check(lengths[i], 3, 1, (layout)how);
            length_check(lengths[i], 2, 20, (layout)how);
        }
}

static void
fft__crops_and_fills_to_n(void **state)
{
    static const int64_t lengths[] = {1, 7, 24, 100, 256, 601};

    (void)state;
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 6; k++)
            for (int op = 0; op < 3; op++)
                for (int64_t cols = 1; cols < 20; cols += 17) {
                    fft_case c = {(uint16_t)(MR_OP_FFT_C2C + op),
                                  k % 2 == 0,
                                  PLAIN,
                                  2,
                                  lengths[i],
                                  cols,
                                  {2, lengths[k], MR_FFT_MEAN, false}};

                    case_check(&c);
                }
}

/* Of a single impulse at j every number is a root of unity: checked where a
 * sum over all numbers would take too long. */
static void
long_line_check(int64_t n, int64_t rows)
{
    arr *x = ARR(MR_COMPLEX64, PLAIN, rows, n);
    arr *out = ARR(MR_COMPLEX64, PLAIN, rows, n);
    mr_fft_params p = {2, MR_INT_NONE, MR_FFT_UNSCALED, false};
    int64_t at = n / 3 + 1;

    memset(x->view.data, 0, (size_t)(n * rows) * 8);
    for (int64_t r = 0; r < rows; r++)
        arr_set_complex(x, r * n + at, 1.0, 0.0);
    assert_int_equal(RUN(MR_OP_FFT_C2C, &p, out, x), MR_OK);
    for (int64_t k = 0; k < n * rows; k += 1 + k % 7 * 101) {
        int64_t turn = k % n * at % n;
        long double angle = TWO_PI * (long double)turn / (long double)n;
        mr_c128 got = arr_complex(out, k);

        assert_close(got.re, (double)cosl(angle), 2e-6);
        assert_close(got.im, -(double)sinl(angle), 2e-6);
    }
    arr_free(x);
    arr_free(out);
}

static void
fft__long_lines_share_the_threads(void **state)
{
    (void)state;
    long_line_check(1 << 18, 1);
    long_line_check(1 << 14, 20);
    long_line_check(1 << 12, 20);
    long_line_check(1000000, 1);
    long_line_check(131101, 2);
    long_line_check(2 * 65537, 1);
}

/* Several axes in one go are the axes one after the other. */
static void
fft__several_axes_are_one_after_the_other(void **state)
{
    static const uint32_t masks[] = {3, 5, 6, 7};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        arr *x = ARR(MR_COMPLEX128, TURNED, 12, 35, 8);
        arr *all = ARR(MR_COMPLEX128, PLAIN, 12, 35, 8);
        arr *part[2] = {ARR(MR_COMPLEX128, PLAIN, 12, 35, 8),
                        ARR(MR_COMPLEX128, PLAIN, 12, 35, 8)};
        mr_fft_params p = {masks[i], MR_INT_NONE, MR_FFT_MEAN, true};
        arr *from = x;
        int to = 0;

        arr_noise(x, 3);
        assert_int_equal(RUN(MR_OP_FFT_C2C, &p, all, x), MR_OK);
        for (uint32_t axis = 0; axis < 3; axis++)
            if (masks[i] >> axis & 1U) {
                p.axes = 1U << axis;
                assert_int_equal(RUN(MR_OP_FFT_C2C, &p, part[to], from), MR_OK);
                from = part[to];
                to = 1 - to;
            }
        for (int64_t k = 0; k < all->view.size; k++) {
            mr_c128 a = arr_complex(all, k), b = arr_complex(from, k);

            assert_close(a.re, b.re, 1e-14);
            assert_close(a.im, b.im, 1e-14);
        }
        arr_free(x);
        arr_free(all);
        arr_free(part[0]);
        arr_free(part[1]);
    }
}

/* Images go through all axes while they are in cache, if there are enough of
 * them; the bits are those of axis by axis. */
static void
fft__images_have_the_bits_of_axis_by_axis(void **state)
{
    static const mr_dtype types[] = {MR_COMPLEX64, MR_COMPLEX128};

    (void)state;
    for (int t = 0; t < 2; t++)
        for (int how = 0; how < N_LAYOUTS; how++)
            for (int inverse = 0; inverse < 2; inverse++) {
                arr *x = ARR(types[t], (layout)how, 3, 16, 64, 256);
                arr *all = ARR(types[t], PLAIN, 3, 16, 64, 256);
                arr *part = ARR(types[t], PLAIN, 3, 16, 64, 256);
                arr *both = ARR(types[t], PLAIN, 3, 16, 64, 256);
                mr_fft_params p = {12, MR_INT_NONE, MR_FFT_ORTHO, inverse};

                arr_noise(x, 5);
                assert_int_equal(RUN(MR_OP_FFT_C2C, &p, all, x), MR_OK);
                p.axes = 8;
                assert_int_equal(RUN(MR_OP_FFT_C2C, &p, part, x), MR_OK);
                p.axes = 4;
                assert_int_equal(RUN(MR_OP_FFT_C2C, &p, both, part), MR_OK);
                assert_memory_equal(all->view.data, both->view.data,
                                    (size_t)all->view.size *
                                        mr__dtype_size(types[t]));
                arr_free(x);
                arr_free(all);
                arr_free(part);
                arr_free(both);
            }
}

static void
fft__plans_are_kept_counted_and_dropped(void **state)
{
    mr_cache_info before = {.size = sizeof before}, now = before;
    int64_t alive = mr__alloc_live();

    (void)state;
    mr_fft_cache_clear();
    assert_int_equal(mr_fft_cache_info(&before), MR_OK);
    assert_int_equal(before.entries, 0);
    assert_int_equal(before.bytes, 0);
    for (int64_t n = 2; n < 200; n++) {
        fft_case c = {
            MR_OP_FFT_C2C, false, PLAIN, 1, n, 1, {2, MR_INT_NONE, 0, false}};

        case_check(&c);
    }
    mr_fft_cache_info(&now);
    assert_true(now.entries <= 128 && now.entries > 100);
    assert_true(now.evictions > before.evictions);
    assert_true(now.misses > before.misses);
    assert_true(now.hits > before.hits);
    mr_fft_cache_clear();
    mr_fft_cache_info(&now);
    assert_int_equal(now.entries, 0);
    assert_int_equal(mr__alloc_live(), alive);
    assert_int_equal(mr_fft_cache_info(NULL), MR_E_NULL);
    assert_int_equal(mr_error_take().code, MR_E_NULL);
}

/* Passes from columns and to columns, of tiers a and b: the same bits, and
 * those of a load, a pass and a store. */
static void
ends_check(const mr_fft_pass *f, char *x, bool wide,
           const mr_fft_tier *const *tier)
{
    static _Alignas(64) char panel[32 * 128], y[3][32 * 128], z[3][32 * 128];
    int64_t n = f->radix * f->m * f->s, item = wide ? 8 : 4;
    mr_fft_lines l = {
        .n_lanes = wide ? 8 : 16, .step = 128 / item, .im = 1, .n = n};

    for (int swap = 0; swap < 2; swap++) {
        l.swap = swap;
        for (int k = 0; k < l.n_lanes; k++)
            l.line[k] = x + 2 * k * item;
        tier[0]->load(panel, n, &l);
        tier[0]->pass(f, panel, y[2]);
        for (int t = 0; t < 2; t++)
            if (tier[t]->pass_from(f, &l, y[t]))
                assert_memory_equal(y[t], y[2], (size_t)n * 128);
            else
                assert_true(f->radix != 4 && f->radix != 8 && f->radix != 16);
        for (int t = 0; t < 3; t++) {
            for (int k = 0; k < l.n_lanes; k++)
                l.line[k] = z[t] + 2 * k * item;
            if (t == 2)
                tier[0]->store(&l, n, y[2], 0.5);
            else if (!tier[t]->pass_to(f, panel, &l, 0.5))
                return;
        }
        assert_memory_equal(z[0], z[2], (size_t)n * 128);
        assert_memory_equal(z[1], z[2], (size_t)n * 128);
    }
}

static void
fft__rows_have_the_same_bits_in_tiers_with_fma(void **state)
{
    static _Alignas(64) char line[32 * 128], w[32 * 128], y[2][32 * 128];
    const mr_fft_tier *a, *b;

    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        int64_t lanes = wide ? 8 : 16, n = 2 * lanes * lanes;

        a = mr__fft_of_tier(MR_TIER_AVX2, wide);
        b = mr__fft_of_tier(MR_TIER_AVX512, wide);
        if (!a || !b)
            skip();
        for (int64_t i = 0; i < 2 * n; i++) {
            double d[2] = {sin((double)i), cos((double)i)};
            float s[2] = {(float)d[0], (float)d[1]};

            memcpy(line + i * (wide ? 8 : 4), wide ? (void *)d : (void *)s,
                   wide ? 8 : 4);
            memcpy(w + i * (wide ? 8 : 4), wide ? (void *)&d[1] : (void *)&s[1],
                   wide ? 8 : 4);
        }
        a->row(y[0], line, wide, 2 * lanes, w);
        b->row(y[1], line, wide, 2 * lanes, w);
        assert_memory_equal(y[0], y[1], (size_t)n * (wide ? 16 : 8));
    }
}

/* Butterflies of every radix, loads and stores: the same bits. */
static void
fft__tiers_with_fma_give_the_same_bits(void **state)
{
    static const int32_t radix[] = {2, 3, 4, 5, 7, 8, 13, 16};
    static _Alignas(64) char x[32 * 128], y[2][32 * 128], w[32 * 16],
        root[16 * 16];
    const mr_fft_tier *tier[2][2];

    for (int wide = 0; wide < 2; wide++) {
        tier[wide][0] = mr__fft_of_tier(MR_TIER_AVX2, wide);
        tier[wide][1] = mr__fft_of_tier(MR_TIER_AVX512, wide);
    }
    if (!tier[0][0] || !tier[0][1])
        skip();
    for (int wide = 0; wide < 2; wide++)
        for (size_t i = 0; i < sizeof radix / sizeof radix[0]; i++) {
            mr_fft_pass f = {radix[i], 2, 1, w, root};
            char *fill[3] = {x, w, root};
            size_t bytes[3] = {sizeof x, sizeof w, sizeof root};

            for (int k = 0; k < 3; k++)
                for (size_t at = 0; at < bytes[k]; at += wide ? 8 : 4) {
                    double d = sin((double)(at * 7 + 1));
                    float s = (float)d;

                    memcpy(fill[k] + at, wide ? (void *)&d : (void *)&s,
                           wide ? 8 : 4);
                }
            for (int t = 0; t < 2; t++)
                tier[wide][t]->pass(&f, x, y[t]);
            assert_memory_equal(y[0], y[1], (size_t)radix[i] * 2 * 128);
            ends_check(&f, x, wide, tier[wide]);
        }
    (void)state;
}

static void
overlap_add__adds_frames_where_they_meet(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT64, MR_COMPLEX64,
                                     MR_COMPLEX128};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int how = 0; how < N_LAYOUTS; how++)
            for (int64_t hop = 1; hop <= 9; hop += 4) {
                int64_t count = 1300, size = 7, start = 3;
                int64_t length = (count - 1) * hop + size - start - 2;
                arr *x = ARR(types[t], (layout)how, 2, count, size);
                arr *out = ARR(types[t], PLAIN, 2, length);
                mr_overlap_params p = {hop, start, length, false};
                mr_c128 *want =
                    calloc((size_t)(2 * (length + 5)), sizeof *want);

                assert_non_null(want);
                arr_count(x, 4);
                for (int64_t i = 0; i < x->view.size; i++) {
                    int64_t f = i / size % count, k = i % size + f * hop;
                    mr_c128 *to = want + i / size / count * (length + 5) + k;

                    to->re += arr_complex(x, i).re;
                    to->im += arr_complex(x, i).im;
                }
                assert_int_equal(RUN(MR_OP_OVERLAP_ADD, &p, out, x), MR_OK);
                for (int64_t i = 0; i < out->view.size; i++) {
                    mr_c128 *w =
                        want + i / length * (length + 5) + start + i % length;

                    assert_close(arr_complex(out, i).re, w->re, 0.0);
                    assert_close(arr_complex(out, i).im, w->im, 0.0);
                }
                free(want);
                arr_free(x);
                arr_free(out);
            }
}

static void
overlap_add__can_refuse_sums_of_zero(void **state)
{
    arr *x = ARR(MR_FLOAT32, PLAIN, 2, 3), *out = ARR(MR_FLOAT32, PLAIN, 6);
    mr_overlap_params p = {3, 0, 6, true};

    (void)state;
    for (int64_t i = 0; i < 6; i++)
        arr_set(x, i, i == 4 ? 0.0 : 1.0);
    assert_int_equal(RUN(MR_OP_OVERLAP_ADD, &p, out, x), MR_E_VALUE);
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    p.nonzero = false;
    assert_int_equal(RUN(MR_OP_OVERLAP_ADD, &p, out, x), MR_OK);
    arr_free(x);
    arr_free(out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fft__is_the_defined_sum_for_small_lengths),
        cmocka_unit_test(fft__is_the_defined_sum_for_primes_and_powers),
        cmocka_unit_test(fft__takes_any_layout),
        cmocka_unit_test(fft__crops_and_fills_to_n),
        cmocka_unit_test(fft__long_lines_share_the_threads),
        cmocka_unit_test(fft__several_axes_are_one_after_the_other),
        cmocka_unit_test(fft__images_have_the_bits_of_axis_by_axis),
        cmocka_unit_test(fft__plans_are_kept_counted_and_dropped),
        cmocka_unit_test(fft__tiers_with_fma_give_the_same_bits),
        cmocka_unit_test(fft__rows_have_the_same_bits_in_tiers_with_fma),
        cmocka_unit_test(overlap_add__adds_frames_where_they_meet),
        cmocka_unit_test(overlap_add__can_refuse_sums_of_zero),
    };

    return cmocka_run_group_tests_name("cpu/fft", tests, NULL, NULL);
}
