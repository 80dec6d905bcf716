/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h -- softmax and the norms of rows that are one block of points.
 *
 * The same functions in the same order as the block programs of cpu/blocks.c,
 * so the same bits: sums in 64 virtual lanes (folds.h).  What falls away is a
 * pass over the row for each instruction.  Halves are widened as they are read
 * and rounded once.  Included by ops.h for floating-point dtypes.
 */
#ifndef MR_KERNELS_TIER_ROWS_H
#define MR_KERNELS_TIER_ROWS_H

/* Lane 0, everywhere. */
INLINE V
lane_everywhere(V x)
{
    acc one;

    acc_store_1(&one, x);
    return v_set(one);
}

INLINE V
row_folded(const elem *x, int64_t n, fold_op *op, V identity)
{
    V v[N_VECS];

    if (fold_unwidened(x, n, op, v))
        return v[0];
    for (int j = 0; j < N_VECS; j++)
        v[j] = identity;
    fold_block(v, x, n, op);
    return lane_everywhere(fold_lanes(v, lanes_in_use(n, true), op));
}

/* A pass that computes more than it moves asks for lines of the next row, into
 * the second-level cache, while it is at vector i of the row: so memory is
 * never idle, nor met by a burst.  A line for each vector of elements is all of
 * a row. */
INLINE void
row_foresee(const elem *next, int64_t i)
{
    __builtin_prefetch(next + i, 0, 2);
}

/* Halves are widened first and rounded last. */
#if MR_LANE_BITS == 32
#define row_e_to v_full_exp
#else
#define row_e_to v_exp
#endif

/* e = exp(x - top), and its sum; of whole blocks of lanes e lies in the order
 * of pair_load. */
INLINE V
row_exp(acc *e, const elem *x, int64_t n, V top)
{
    V v[N_VECS], y;
    int64_t left = n;

    for (int j = 0; j < N_VECS; j++)
        v[j] = MR_IDENTITY_SUM;
    for (; left >= MR_LANES; left -= MR_LANES, x += MR_LANES, e += MR_LANES) {
#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j += 2) {
            V z;

            pair_load(x + j * N_LANES, &y, &z);
            y = row_e_to(k_subtract(y, top));
            z = row_e_to(k_subtract(z, top));
            acc_store(e + j * N_LANES, y);
            acc_store(e + (j + 1) * N_LANES, z);
            v[j] = k_add(v[j], y);
            v[j + 1] = k_add(v[j + 1], z);
        }
    }
    pairs_together(v);
    for (int j = 0; left > 0; j++, left -= N_LANES, x += N_LANES) {
        y = row_e_to(k_subtract(operand(x, 1, left), top));
        if (left >= N_LANES)
            acc_store(e, y);
        else
            acc_store_n(e, y, left);
        v[j] = k_select(m_below(left), k_add(v[j], y), v[j]);
        e += N_LANES;
    }
    return lane_everywhere(fold_lanes(v, lanes_in_use(n, true), k_add));
}

/* Quotients by one number: a division of a vector takes 8 to 16 cycles, these
 * five operations three, and the result is the same.  q is e times the inverse,
 * rounded, corrected by its exact remainder (P. Markstein, 1990): the first
 * correction leaves an error of less than a unit in the last place, the second
 * rounds correctly, as the inverse does and no remainder is lost, that is, if e
 * is 0 or from LEAST_QUICK to 1 and the number from 1 to MOST_QUICK. */
#if MR_TIER_ID != MR_TIER_BASELINE
#define ROW_QUICK   1
#define LEAST_QUICK C(MR_LANE_BITS == 32 ? 0x1p-80 : 0x1p-900)
#define MOST_QUICK  C(0x1p20)
#else
#define ROW_QUICK   0
#define LEAST_QUICK C(1)
#define MOST_QUICK  C(0)
#endif

typedef struct divisor {
    V sum, minus, inverse;
    bool quick;
} divisor;

INLINE divisor
divisor_of(V sum)
{
    return (divisor){sum, v_neg(sum), k_divide(C(1), sum),
                     ROW_QUICK && !m_any(m_not(v_lt(sum, MOST_QUICK)))};
}

INLINE V
quotient(V e, const divisor *d, bool quick)
{
    V q;

    if (!quick)
        return k_divide(e, d->sum);
    q = k_multiply(e, d->inverse);
    q = v_fma(v_fma(q, d->minus, e), d->inverse, q);
    return v_fma(v_fma(q, d->minus, e), d->inverse, q);
}

/* Is one of these too small, and not 0?  `least` is the least of each lane. */
INLINE bool
some_tiny(const acc *e, V least)
{
    bool tiny = false;

    if (!m_any(v_lt(least, LEAST_QUICK)))
        return false;
    for (int j = 0; j < N_VECS; j++) {
        V x = acc_load(e + j * N_LANES);

        tiny |= m_any(m_and(v_lt(x, LEAST_QUICK), v_lt(C(0), x)));
    }
    return tiny;
}

/* A block of lanes. */
INLINE void
quotients(elem *y, const acc *e, const divisor *d, bool quick)
{
#pragma GCC unroll 16
    for (int j = 0; j < N_VECS; j += 2)
        pair_store(y + j * N_LANES,
                   quotient(acc_load(e + j * N_LANES), d, quick),
                   quotient(acc_load(e + (j + 1) * N_LANES), d, quick));
}

/* y = e over the sum; lines of the next row are asked for. */
INLINE void
row_quotients(elem *y, const acc *e, int64_t n, V sum, const elem *next)
{
    divisor d = divisor_of(sum);
    int64_t i = 0;

    for (; i + MR_LANES <= n; i += MR_LANES) {
        V least = acc_load(e + i);

#pragma GCC unroll 16
        for (int j = 1; j < N_VECS; j++)
            least = v_lesser(least, acc_load(e + i + j * N_LANES));
#pragma GCC unroll 16
        for (int j = 0; j < MR_LANES * (int)sizeof *y / 64; j++)
            row_foresee(next, i + j * (64 / (int)sizeof *y));
        if (d.quick && !some_tiny(e + i, least))
            quotients(y + i, e + i, &d, true);
        else
            quotients(y + i, e + i, &d, false);
    }
    for (; i + N_LANES <= n; i += N_LANES)
        x_store(y + i, k_divide(acc_load(e + i), sum));
    if (i < n)
        x_store_n(y + i, k_divide(acc_load_n(e + i, n - i), sum), n - i);
}

static void
rows_softmax(void *out, int64_t out_bytes, const void *in, int64_t in_bytes,
             int64_t n, int64_t n_rows)
{
    char *to = out;
    const char *from = in;
#ifdef MR_HALF
    acc wide[MR_RED_BLOCK];
#endif

    for (; n_rows > 0; n_rows--, to += out_bytes, from += in_bytes) {
        const elem *x = (const elem *)(const void *)from;
        elem *y = (elem *)(void *)to;
#ifdef MR_HALF
        acc *e = wide;
#else
        acc *e = y;
#endif
        V sum = row_exp(e, x, n, row_folded(x, n, k_maximum, MR_IDENTITY_MAX));

        row_quotients(
            y, e, n, sum,
            (const elem *)(const void *)(n_rows > 1 ? from + in_bytes : from));
    }
}

INLINE V
row_square(V x, V mean, bool centre)
{
    x = centre ? k_subtract(x, mean) : x;
    return k_multiply(x, x);
}

/* A second pass, of x without its mean, leaves memory time for a line of the
 * next row with each block of lanes: as much as it takes itself. */
INLINE V
row_squares(const elem *x, int64_t n, V mean, bool centre, const elem *next)
{
    V v[N_VECS];
    int64_t left = n;

    for (int j = 0; j < N_VECS; j++)
        v[j] = MR_IDENTITY_SUM;
    for (; left >= MR_LANES; left -= MR_LANES, x += MR_LANES) {
        if (centre) {
            row_foresee(next, 0);
            next += 64 / sizeof *next;
        }
#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j += 2) {
            V y, z;

            pair_load(x + j * N_LANES, &y, &z);
            v[j] = k_add(v[j], row_square(y, mean, centre));
            v[j + 1] = k_add(v[j + 1], row_square(z, mean, centre));
        }
    }
    pairs_together(v);
    for (int j = 0; left > 0; j++, left -= N_LANES, x += N_LANES)
        v[j] = k_select(
            m_below(left),
            k_add(v[j], row_square(operand(x, 1, left), mean, centre)), v[j]);
    return lane_everywhere(fold_lanes(v, lanes_in_use(n, true), k_add));
}

/* Values at i, the last vector of a row possibly not whole. */
INLINE V
row_scaled(const elem *x, const mr_norm_rows *p, int64_t i, int64_t left,
           V mean, V scale, bool centre)
{
    V y = operand(x + i, 1, left);

    y = k_multiply(centre ? k_subtract(y, mean) : y, scale);
    if (p->weight != NULL)
        y = k_multiply(y, operand((const elem *)p->weight + i, 1, left));
    if (p->bias != NULL)
        y = k_add(y, operand((const elem *)p->bias + i, 1, left));
    return y;
}

/* The same of two vectors at i. */
INLINE void
row_scaled_pair(elem *out, const elem *x, const mr_norm_rows *p, int64_t i,
                V mean, V scale, bool centre)
{
    V y, z, a, b;

    pair_load(x + i, &y, &z);
    y = k_multiply(centre ? k_subtract(y, mean) : y, scale);
    z = k_multiply(centre ? k_subtract(z, mean) : z, scale);
    if (p->weight != NULL) {
        pair_load((const elem *)p->weight + i, &a, &b);
        y = k_multiply(y, a);
        z = k_multiply(z, b);
    }
    if (p->bias != NULL) {
        pair_load((const elem *)p->bias + i, &a, &b);
        y = k_add(y, a);
        z = k_add(z, b);
    }
    pair_store(out + i, y, z);
}

INLINE void
norm_row(elem *y, const elem *x, const mr_norm_rows *p, int64_t n, bool centre,
         const elem *next)
{
    V count = v_set(*(const acc *)p->count), eps = v_set(*(const acc *)p->eps);
    V mean = C(0), scale;
    int64_t i = 0;

    if (centre)
        mean = k_divide(row_folded(x, n, k_add, MR_IDENTITY_SUM), count);
    scale = k_divide(row_squares(x, n, mean, centre, next), count);
    scale = k_rsqrt(k_add(scale, eps));
    for (; i + 2 * N_LANES <= n; i += 2 * N_LANES)
        row_scaled_pair(y, x, p, i, mean, scale, centre);
    for (; i + N_LANES <= n; i += N_LANES)
        x_store(y + i, row_scaled(x, p, i, N_LANES, mean, scale, centre));
    if (i < n)
        x_store_n(y + i, row_scaled(x, p, i, n - i, mean, scale, centre),
                  n - i);
}

static void
rows_norm(void *out, int64_t out_bytes, const void *in, int64_t in_bytes,
          const mr_norm_rows *p, int64_t n, int64_t n_rows)
{
    char *to = out;
    const char *from = in;

    for (; n_rows > 0; n_rows--, to += out_bytes, from += in_bytes) {
        elem *y = (elem *)(void *)to;
        const elem *x = (const elem *)(const void *)from;
        const elem *next =
            (const elem *)(const void *)(n_rows > 1 ? from + in_bytes : from);

        if (p->centre)
            norm_row(y, x, p, n, true, next);
        else
            norm_row(y, x, p, n, false, next);
    }
}

#endif
