/* SPDX-License-Identifier: Apache-2.0
 *
 * depth.h -- sums over taps for one kind of lane.  Each channel is a chain of
 * fused multiply-adds in the order of the taps, whatever the tier.
 *
 * One position: four vectors of channels stay in registers while the taps go
 * by.  A row of positions: TILE positions of one vector of channels do, with
 * the weights of some taps, so that an entry is read once for all of these.
 *
 * The including file has included lanes.h and part.h, and defines load_x(kind,
 * x, i, left): the elements i ... of x as a vector, `left` of them there; and
 * item_of(kind).
 */
#ifndef MR_KERNELS_TIER_DEPTH_H
#define MR_KERNELS_TIER_DEPTH_H

#define TILE 8

/* ---- one position ----------------------------------------------------------
 */

/* `count` vectors from channel c on, the last one perhaps in part. */
INLINE void
taps_piece(const int kind, lane *y, const void *const *x, const lane *w,
           int64_t w_row, int64_t n_taps, int64_t left, int64_t c, bool add,
           const int count)
{
    R sum[4];

    for (int v = 0; v < count; v++)
        sum[v] = add ? load(y + c + v * N_LANES, left - v * N_LANES) : (R){0};
    for (int64_t t = 0; t < n_taps; t++) {
        if (!x[t])
            continue;
        for (int v = 0; v < count; v++) {
            int64_t at = c + v * N_LANES, there = left - v * N_LANES;

            sum[v] = multiply_add(load_x(kind, x[t], at, there),
                                  load(w + t * w_row + at, there), sum[v]);
        }
    }
    for (int v = 0; v < count; v++)
        store(y + c + v * N_LANES, sum[v], left - v * N_LANES);
}

INLINE void
taps_of(const int kind, void *to, const void *const *x, const void *w,
        int64_t w_row, int64_t n_taps, int64_t n, bool add)
{
    int64_t c = 0;

    for (; c + 4 * N_LANES <= n; c += 4 * N_LANES)
        taps_piece(kind, to, x, w, w_row, n_taps, 4 * N_LANES, c, add, 4);
    for (; c < n; c += N_LANES)
        taps_piece(kind, to, x, w, w_row, n_taps, n - c, c, add, 1);
}

/* ---- a row of positions ----------------------------------------------------
 */

/* Taps next to each other of positions next to each other: entry i of the line
 * meets tap i - o of position o.  Entry i is entry `at + i`; beyond the line
 * there is nothing. */
INLINE void
slide(const int kind, R *sum, const mr_depth_row *r, const void *x,
      const lane *w, int64_t at, int64_t c, int64_t left, const int taps)
{
    R weight[7];

#pragma GCC unroll 7
    for (int k = 0; k < taps; k++)
        weight[k] = load(w + k * r->w_tap, left);
#pragma GCC unroll 16
    for (int i = 0; i < TILE + taps - 1; i++) {
        R entry;

        if ((uint64_t)(at + i) >= (uint64_t)r->in)
            continue;
        entry = load_x(kind, x, (at + i) * r->x_row + c, left);
#pragma GCC unroll 8
        for (int o = 0; o < TILE; o++)
            if (i - o >= 0 && i - o < taps)
                sum[o] = multiply_add(entry, weight[i - o], sum[o]);
    }
}

/* The same where all entries are there and a line has no more taps: no question
 * and no product for an address.  x is entry `at`, a vector of channels. */
INLINE void
slide_inside(const int kind, R *sum, const char *x, int64_t row_bytes,
             const lane *w, int64_t w_tap, const int taps)
{
    R weight[7];

#pragma GCC unroll 7
    for (int k = 0; k < taps; k++)
        weight[k] = v_load(w + k * w_tap);
#pragma GCC unroll 16
    for (int i = 0; i < TILE + taps - 1; i++, x += row_bytes) {
        R entry = load_x(kind, x, 0, N_LANES);

#pragma GCC unroll 8
        for (int o = 0; o < TILE; o++)
            if (i - o >= 0 && i - o < taps)
                sum[o] = multiply_add(entry, weight[i - o], sum[o]);
    }
}

/* The same with positions or taps some way apart. */
INLINE void
stride(const int kind, R *sum, const mr_depth_row *r, const void *x,
       const lane *w, int64_t at, int64_t c, int64_t left, const int taps)
{
    R weight[3];

#pragma GCC unroll 3
    for (int k = 0; k < taps; k++)
        weight[k] = load(w + k * r->w_tap, left);
#pragma GCC unroll 8
    for (int o = 0; o < TILE; o++, at += r->stride)
#pragma GCC unroll 3
        for (int k = 0; k < taps; k++) {
            int64_t i = at + k * r->dilation;

            if ((uint64_t)i < (uint64_t)r->in)
                sum[o] = multiply_add(load_x(kind, x, i * r->x_row + c, left),
                                      weight[k], sum[o]);
        }
}

/* The entries that later positions are the first to meet: they are far apart,
 * which the processor does not foresee. */
INLINE void
fetch_ahead(const mr_depth_row *r, int64_t at, int64_t c, int64_t item)
{
    uintptr_t x = (uintptr_t)r->ahead;

    x += (uintptr_t)(((at + r->taps - 1) * r->x_row + c) * item);
#pragma GCC unroll 8
    for (int i = 0; i < TILE; i++)
        __builtin_prefetch(
            (const void *)(x + (uintptr_t)(i * r->x_row * item)));
}

/* One vector of channels of the positions from o on; `most` taps at a time. */
INLINE void
row_vector(const int kind, lane *y, const mr_depth_row *r, int64_t o, int64_t c,
           int64_t left, const int most, const bool apart)
{
    int64_t first = r->first + o * r->stride;
    R sum[TILE];

#pragma GCC unroll 8
    for (int i = 0; i < TILE; i++)
        sum[i] = (R){0};
    if (r->ahead)
        fetch_ahead(r, first, c, item_of(kind));
    for (int64_t l = 0; l < r->n_lines; l++) {
        const lane *w = (const lane *)r->w + l * r->w_line + c;
        const void *x = r->x[l];
        int64_t k = 0, at = first;

        if (!x)
            continue;
        for (; k + most <= r->taps; k += most, w += most * r->w_tap) {
            if (apart)
                stride(kind, sum, r, x, w, at, c, left, most);
            else
                slide(kind, sum, r, x, w, at, c, left, most);
            at += most * r->dilation;
        }
        for (; k < r->taps; k++, w += r->w_tap, at += r->dilation)
            stride(kind, sum, r, x, w, at, c, left, 1);
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE; i++)
        if (o + i < r->n_out)
            store(y + (o + i) * r->y_row + c, sum[i], left);
}

/* Is that so for the positions from o on? */
INLINE bool
is_inside(const mr_depth_row *r, int64_t o, const int most, const bool apart)
{
    int64_t at = r->first + o;

    return !apart && r->taps == most && o + TILE <= r->n_out && at >= 0 &&
           at + TILE + most - 1 <= r->in;
}

/* Whole vectors of channels of such positions; where they end. */
INLINE int64_t
row_inside(const int kind, lane *y, const mr_depth_row *r, int64_t o,
           const int most)
{
    int64_t at = r->first + o, item = item_of(kind), c = r->from;
    int64_t row_bytes = r->x_row * item;

    for (; c + N_LANES <= r->n; c += N_LANES) {
        lane *to = y + o * r->y_row + c;
        const lane *w = (const lane *)r->w + c;
        R sum[TILE];

#pragma GCC unroll 8
        for (int i = 0; i < TILE; i++)
            sum[i] = (R){0};
        if (r->ahead)
            fetch_ahead(r, at, c, item);
        for (int64_t l = 0; l < r->n_lines; l++, w += r->w_line)
            if (r->x[l])
                slide_inside(kind, sum,
                             (const char *)r->x[l] + at * row_bytes + c * item,
                             row_bytes, w, r->w_tap, most);
#pragma GCC unroll 8
        for (int i = 0; i < TILE; i++, to += r->y_row)
            v_store(to, sum[i]);
    }
    return c;
}

INLINE void
row_of(const int kind, lane *y, const mr_depth_row *r, const int most,
       const bool apart)
{
    for (int64_t o = 0; o < r->n_out; o += TILE) {
        int64_t c = is_inside(r, o, most, apart)
                        ? row_inside(kind, y, r, o, most)
                        : r->from;

        for (; c + N_LANES <= r->n; c += N_LANES)
            row_vector(kind, y, r, o, c, N_LANES, most, apart);
        if (c < r->n)
            row_vector(kind, y, r, o, c, r->n - c, most, apart);
    }
}

INLINE void
row_choose(const int kind, void *y, const mr_depth_row *r)
{
    if (r->stride != 1 || r->dilation != 1)
        row_of(kind, y, r, 3, true);
    else if (r->taps == 5)
        row_of(kind, y, r, 5, false);
    else if (r->taps >= 7)
        row_of(kind, y, r, 7, false);
    else
        row_of(kind, y, r, 3, false);
}

#endif
