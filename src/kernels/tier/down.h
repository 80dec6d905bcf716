/* SPDX-License-Identifier: Apache-2.0
 *
 * down.h -- folds down columns: rows that all go to one lane.
 *
 * Rows lie far apart, so a few are gone over at once while the next few are
 * brought near, and a column's value is read and written once for them.  Pairs
 * of halves stay apart (pair_apart) from the first row to the last.
 *
 * A maximum or minimum of halves is that of keys of 16 bits (half.h), with half
 * as many instructions; where a key does not say which bits would have come
 * out (NaN, a zero that there may be of both signs), these columns are folded
 * again the other way.  Included by folds.h.
 */
#ifndef MR_KERNELS_TIER_DOWN_H
#define MR_KERNELS_TIER_DOWN_H

/* Rows at a time: eight share too few sets of the first-level cache. */
#define DOWN_ROWS 4

#if N_VECS > 1
/* Columns of two vectors each. */
#define DOWN_COLS (2 * N_LANES)

/* A few rows, and those to bring near. */
typedef struct down_rows {
    const elem *at[DOWN_ROWS], *next[DOWN_ROWS];
} down_rows;

/* The first of `left` rows; the next to come may be fewer. */
INLINE down_rows
down_rows_at(const char *row, int64_t row_bytes, int64_t left)
{
    down_rows r;

    for (int i = 0; i < DOWN_ROWS; i++) {
        int64_t next = i + DOWN_ROWS < left ? i + DOWN_ROWS : 0;

        r.at[i] = (const elem *)(const void *)(row + i * row_bytes);
        r.next[i] = (const elem *)(const void *)(row + next * row_bytes);
    }
    return r;
}

/* Brings the next rows near, from column c on. */
INLINE void
down_foresee(const down_rows *r, int64_t c, int64_t bytes)
{
#pragma GCC unroll 4
    for (int i = 0; i < DOWN_ROWS; i++)
#pragma GCC unroll 4
        for (int64_t b = 0; b < bytes; b += 64)
            __builtin_prefetch((const char *)(r->next[i] + c) + b);
}

/* DOWN_COLS columns of n rows, by `op`. */
INLINE void
down_pair(acc *a, const down_rows *r, int64_t c, int n, fold_op *op)
{
    V v = acc_load(a + c), w = acc_load(a + c + N_LANES), y, z;

#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        pair_load(r->at[i] + c, &y, &z);
        v = op(v, y);
        w = op(w, z);
    }
    acc_store(a + c, v);
    acc_store(a + c + N_LANES, w);
}

#if MR_KIND == MR_KIND_FLOAT
/* The same by an op that knows no NaN; were there any, nothing is done. */
INLINE bool
down_pair_ordered(acc *a, const down_rows *r, int64_t c, int n, fold_op *op)
{
    V v = acc_load(a + c), w = acc_load(a + c + N_LANES), y, z;
    NAN_SEEN seen = nan_see(NAN_SEEN_NONE, v, w);

#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        pair_load(r->at[i] + c, &y, &z);
        seen = nan_see(seen, y, z);
        v = op(v, y);
        w = op(w, z);
    }
    if (nan_seen(seen))
        return false;
    acc_store(a + c, v);
    acc_store(a + c + N_LANES, w);
    return true;
}
#endif

/* The columns from c on, less than DOWN_COLS, of all rows. */
INLINE void
down_few(acc *a, const char *row, int64_t row_bytes, int64_t n_rows, int64_t c,
         int64_t n_cols, fold_op *op)
{
    for (; c < n_cols; c += N_LANES) {
        int64_t n = n_cols - c < N_LANES ? n_cols - c : N_LANES;
        const char *at = row + c * (int64_t)sizeof(elem);
        V v = acc_load_n(a + c, n);

        for (int64_t i = 0; i < n_rows; i++, at += row_bytes)
            v = op(v, x_load_n((const elem *)(const void *)at, n));
        acc_store_n(a + c, v, n);
    }
}

/* n rows, the columns of whole pairs. */
INLINE void
down_some(acc *a, const down_rows *r, int64_t n_cols, int n, fold_op *op)
{
    int64_t c = 0;

    for (; c + DOWN_COLS <= n_cols; c += DOWN_COLS) {
        down_foresee(r, c, DOWN_COLS * (int64_t)sizeof(elem));
#if MR_KIND == MR_KIND_FLOAT
        if (op == k_maximum && down_pair_ordered(a, r, c, n, v_larger))
            continue;
        if (op == k_minimum && down_pair_ordered(a, r, c, n, v_lesser))
            continue;
#endif
        down_pair(a, r, c, n, op);
    }
}

/* The columns of whole pairs, apart and back. */
INLINE void
down_apart(acc *a, int64_t n_cols, void (*way)(V *, V *))
{
#ifdef MR_HALF_PAIRS
    for (int64_t c = 0; c + DOWN_COLS <= n_cols; c += DOWN_COLS) {
        V v = acc_load(a + c), w = acc_load(a + c + N_LANES);

        way(&v, &w);
        acc_store(a + c, v);
        acc_store(a + c + N_LANES, w);
    }
#else
    (void)a;
    (void)n_cols;
    (void)way;
#endif
}

INLINE void
fold_down_wide(acc *a, const char *row, int64_t row_bytes, int64_t n_rows,
               int64_t n_cols, fold_op *op)
{
    const char *at = row;
    int64_t left = n_rows;

    down_apart(a, n_cols, pair_apart);
    for (; left >= DOWN_ROWS; left -= DOWN_ROWS, at += DOWN_ROWS * row_bytes) {
        down_rows r = down_rows_at(at, row_bytes, left);

        down_some(a, &r, n_cols, DOWN_ROWS, op);
    }
    for (; left > 0; left--, at += row_bytes) {
        down_rows r = down_rows_at(at, 0, 0);

        down_some(a, &r, n_cols, 1, op);
    }
    down_apart(a, n_cols, pair_together);
    down_few(a, row, row_bytes, n_rows, n_cols / DOWN_COLS * DOWN_COLS, n_cols,
             op);
}
#endif

#ifdef MR_HALF
/* Vectors of keys that are alive at once. */
#define DOWN_KEYS 16

/* Fewer rows are not worth making keys and numbers of them again. */
#define KEY_ROWS 8

/* Where vector k of n_cols columns begins: the last goes to the end, and
 * shares columns with the one before (to meet a number twice changes nothing).
 */
INLINE int64_t
key_column(int k, int64_t n_cols)
{
    int64_t c = (int64_t)k * N_HALVES;

    return c + N_HALVES <= n_cols ? c : n_cols - N_HALVES;
}

/* n rows into the keys of all columns. */
INLINE void
keys_take(HALVES *key, const down_rows *r, int64_t n_cols, int n, bool largest)
{
    for (int k = 0; k * N_HALVES < n_cols; k++) {
        int64_t c = key_column(k, n_cols);
        HALVES top = key[k];

        down_foresee(r, c, (int64_t)sizeof top);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            top = halves_larger(top,
                                halves_key(halves_load(r->at[i] + c), largest));
        key[k] = top;
    }
}

/* N_HALVES columns take what a key stands for; false: it does not say. */
INLINE bool
key_leaves(acc *a, HALVES key, fold_op *op)
{
    elem x[N_HALVES];
    HALVES bits;

    if (!halves_of_keys(key, op == k_maximum, &bits))
        return false;
    memcpy(x, &bits, sizeof x);
#pragma GCC unroll 2
    for (int i = 0; i < N_HALVES; i += N_LANES)
        acc_store(a + i, op(acc_load(a + i), x_load(x + i)));
    return true;
}

/* N_HALVES to DOWN_KEYS * N_HALVES columns. */
INLINE void
fold_down_keys(acc *a, const char *row, int64_t row_bytes, int64_t n_rows,
               int64_t n_cols, fold_op *op)
{
    bool largest = op == k_maximum;
    const char *at = row;
    int64_t left = n_rows;
    HALVES key[DOWN_KEYS];

    for (int k = 0; k < DOWN_KEYS; k++)
        key[k] = KEY_IDENTITY - (HALVES){0};
    for (; left >= DOWN_ROWS; left -= DOWN_ROWS, at += DOWN_ROWS * row_bytes) {
        down_rows r = down_rows_at(at, row_bytes, left);

        keys_take(key, &r, n_cols, DOWN_ROWS, largest);
    }
    for (; left > 0; left--, at += row_bytes) {
        down_rows r = down_rows_at(at, 0, 0);

        keys_take(key, &r, n_cols, 1, largest);
    }
    for (int k = 0; k * N_HALVES < n_cols; k++) {
        int64_t c = key_column(k, n_cols);

        if (!key_leaves(a + c, key[k], op))
            fold_down_wide(a + c, row + c * (int64_t)sizeof(elem), row_bytes,
                           n_rows, N_HALVES, op);
    }
}
#endif

INLINE void
fold_down(acc *a, const char *row, int64_t row_bytes, int64_t n_rows,
          int64_t n_cols, fold_op *op)
{
#ifdef MR_HALF
    while ((op == k_maximum || op == k_minimum) && n_cols >= N_HALVES &&
           n_rows >= KEY_ROWS) {
        int64_t n =
            DOWN_KEYS * N_HALVES < n_cols ? DOWN_KEYS * N_HALVES : n_cols;

        fold_down_keys(a, row, row_bytes, n_rows, n, op);
        a += n;
        row += n * (int64_t)sizeof(elem);
        n_cols -= n;
    }
#endif
#if N_VECS > 1
    fold_down_wide(a, row, row_bytes, n_rows, n_cols, op);
#else
    for (; n_rows > 0; n_rows--, row += row_bytes)
        fold_line(a, (const elem *)(const void *)row, n_cols, op);
#endif
}

#endif
