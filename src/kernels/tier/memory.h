/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h -- between the elements of a dtype in memory and vectors of values.
 *
 *   elem  one element in memory       x_load, x_store: a V of elements
 *   acc   one element of the accumulation dtype (elem, but float for halves)
 *         acc_load, acc_store: a V of them
 * The _n forms touch the first n elements only.  Included by ops.h.
 */
#ifndef MR_KERNELS_TIER_MEMORY_H
#define MR_KERNELS_TIER_MEMORY_H

#if MR_KIND == MR_KIND_COMPLEX

typedef struct elem {
    lane re, im;
} elem;
typedef elem acc;
typedef lane real_elem;

INLINE V
acc_load(const acc *p)
{
    R a = v_load(&p->re), b = v_load(&p->re + N_LANES);

    return c_make(v_even(a, b), v_odd(a, b));
}

INLINE V
acc_load_n(const acc *p, int64_t n)
{
    R a = v_load_n(&p->re, 2 * n), b = (R){0};

    if (2 * n > N_LANES)
        b = v_load_n(&p->re + N_LANES, 2 * n - N_LANES);
    return c_make(v_even(a, b), v_odd(a, b));
}

INLINE void
acc_store(acc *p, V z)
{
    v_store(&p->re, v_zip_low(z.re, z.im));
    v_store(&p->re + N_LANES, v_zip_high(z.re, z.im));
}

INLINE void
acc_store_n(acc *p, V z, int64_t n)
{
    v_store_n(&p->re, v_zip_low(z.re, z.im), 2 * n);
    if (2 * n > N_LANES)
        v_store_n(&p->re + N_LANES, v_zip_high(z.re, z.im), 2 * n - N_LANES);
}

INLINE void
acc_stream(acc *p, V z)
{
    v_stream(&p->re, v_zip_low(z.re, z.im));
    v_stream(&p->re + N_LANES, v_zip_high(z.re, z.im));
}

INLINE V
x_up(V z, int h)
{
    return c_make(v_up(z.re, h), v_up(z.im, h));
}

#else /* real kinds */

typedef lane acc;

INLINE V
acc_load(const acc *p)
{
    return v_load(p);
}

INLINE V
acc_load_n(const acc *p, int64_t n)
{
    return v_load_n(p, n);
}

INLINE void
acc_store(acc *p, V x)
{
    v_store(p, x);
}

INLINE void
acc_store_n(acc *p, V x, int64_t n)
{
    v_store_n(p, x, n);
}

INLINE void
acc_stream(acc *p, V x)
{
    v_stream(p, x);
}

INLINE V
x_up(V x, int h)
{
    return v_up(x, h);
}

#endif

#ifdef MR_HALF
/* One widen and one round function for halves (half.h); both NaN-safe. */
typedef uint16_t elem;
typedef uint16_t real_elem;

INLINE V
x_load(const elem *p)
{
    HALF h;

    memcpy(&h, p, sizeof h);
    return half_widen(h);
}

INLINE void
x_store(elem *p, V x)
{
    HALF h = half_round(x);

    memcpy(p, &h, sizeof h);
}

INLINE V
x_load_n(const elem *p, int64_t n)
{
#if MR_TIER_ID == MR_TIER_AVX512
    return half_widen(
        (HALF)_mm256_maskz_loadu_epi16((__mmask16)LANE_BITS_BELOW(n), p));
#else
    elem x[N_LANES] = {0};

    for (int64_t i = 0; i < n && i < N_LANES; i++)
        x[i] = p[i];
    return x_load(x);
#endif
}

INLINE void
x_store_n(elem *p, V x, int64_t n)
{
#if MR_TIER_ID == MR_TIER_AVX512
    _mm256_mask_storeu_epi16(p, (__mmask16)LANE_BITS_BELOW(n),
                             (__m256i)half_round(x));
#else
    elem y[N_LANES];

    x_store(y, x);
    for (int64_t i = 0; i < n && i < N_LANES; i++)
        p[i] = y[i];
#endif
}

#else
#if MR_KIND != MR_KIND_COMPLEX
typedef lane elem;
typedef lane real_elem;
#endif
#define x_load    acc_load
#define x_load_n  acc_load_n
#define x_store   acc_store
#define x_store_n acc_store_n
#endif

/* x_load in a long row: by halves where vectors are a cache line, since reads
 * of 64 bytes leave the processor's own prefetchers behind. */
INLINE V
x_load_apart(const elem *p)
{
#if MR_TIER_ID == MR_TIER_AVX512 && MR_KIND != MR_KIND_COMPLEX &&              \
    !defined(MR_HALF)
    const char *at = (const char *)p;
    __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)at);
    __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(at + 32));

    return (V)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#else
    return x_load(p);
#endif
}

/* Real results of complex operands (and of real ones, the same thing). */
INLINE void
real_store_n(lane *p, R x, int64_t n)
{
    if (n >= N_LANES)
        v_store(p, x);
    else
        v_store_n(p, x, n);
}

#endif
