/* SPDX-License-Identifier: Apache-2.0
 *
 * partition.c -- where the smallest and the largest of a row are: selection.
 *
 * The keys of sort.c, so the order is that of a sort: the kth smallest is found
 * by digits of 11 bits from the highest, each a count over what still has the
 * digits before; then the places are dealt out in their order: those of smaller
 * elements, of equal ones, of larger ones.  Linear in the row.  Long rows are
 * counted, narrowed and dealt in pieces on all threads; the pieces show in no
 * result.
 * Called by: device.c.  Calls: sort.c's keys, the pool.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cpu/cpu.h"
#include "cpu/keys.h"
#include "ops/params.h"

enum {
    DIGIT = 11,
    N_DIGITS = 1 << DIGIT,
    PIECE = 1 << 16,
    SHORT_ROW = 1 << 15
};

typedef struct cut {
    mr_dtype dtype;
    int bits;
    int64_t n, kth, first; /* first: places from there on are written */
    int64_t step, item;    /* of the row: in elements; bytes */
    const char *from;
    uint32_t *to;
    int64_t to_step;
    uint64_t *key;          /* of all */
    uint64_t *left, *spare; /* of those that may be the kth */
    int64_t n_left, n_pieces;
    int64_t *count; /* pieces x N_DIGITS */
    int shift;
    uint64_t digit, found; /* the kth digit; the kth key */
    int64_t less, equal;   /* than it, in all */
} cut;

static int64_t
piece_end(int64_t piece, int64_t n)
{
    return (piece + 1) * PIECE < n ? (piece + 1) * PIECE : n;
}

static void
keys_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++)
        mr__keys(c->dtype, c->from + p * PIECE * c->step * c->item, c->step,
                 piece_end(p, c->n) - p * PIECE, c->key + p * PIECE);
}

static void
count_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        int64_t *count = c->count + p * N_DIGITS;

        memset(count, 0, N_DIGITS * sizeof *count);
        for (int64_t i = p * PIECE; i < piece_end(p, c->n_left); i++)
            count[c->left[i] >> c->shift & (N_DIGITS - 1)]++;
    }
}

/* Those with the digit, in order; a piece's first place is in its count. */
static void
narrow_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        int64_t at = c->count[p * N_DIGITS + (int64_t)c->digit];

        for (int64_t i = p * PIECE; i < piece_end(p, c->n_left); i++)
            if ((c->left[i] >> c->shift & (N_DIGITS - 1)) == c->digit)
                c->spare[at++] = c->left[i];
    }
}

/* The digit at `shift` of the kth; what is left has it. */
static void
digit_find(cut *c, int64_t *rank)
{
    int64_t n_pieces = (c->n_left - 1) / PIECE + 1, at = 0, before = 0;

    mr__cpu_for(n_pieces, 1, count_piece, c);
    for (c->digit = 0;; c->digit++) {
        at = 0;
        for (int64_t p = 0; p < n_pieces; p++)
            at += c->count[p * N_DIGITS + (int64_t)c->digit];
        if (before + at > *rank)
            break;
        before += at;
    }
    *rank -= before;
    c->less += before;
    c->equal = at;
    if (at < c->n_left) {
        uint64_t *x = c->left == c->key ? c->spare + c->n : c->left;

        at = 0;
        for (int64_t p = 0; p < n_pieces; p++) {
            int64_t *place = c->count + p * N_DIGITS + (int64_t)c->digit;
            int64_t n = *place;

            *place = at;
            at += n;
        }
        mr__cpu_for(n_pieces, 1, narrow_piece, c);
        c->n_left = at;
        c->left = c->spare;
        c->spare = x;
    }
    c->found |= c->digit << c->shift;
}

/* How many of each piece are smaller and equal. */
static void
sides_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        int64_t less = 0, equal = 0;

        for (int64_t i = p * PIECE; i < piece_end(p, c->n); i++) {
            less += c->key[i] < c->found;
            equal += c->key[i] == c->found;
        }
        c->count[2 * p] = less;
        c->count[2 * p + 1] = equal;
    }
}

static void
deal_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        int64_t less = c->count[2 * p], equal = c->count[2 * p + 1];
        int64_t at[3] = {less, c->less + equal,
                         c->less + c->equal + p * PIECE - less - equal};

        for (int64_t i = p * PIECE; i < piece_end(p, c->n); i++) {
            int side = (c->key[i] >= c->found) + (c->key[i] > c->found);
            int64_t place = at[side]++ - c->first;

            if (place >= 0)
                c->to[place * c->to_step] = (uint32_t)i;
        }
    }
}

static void
row_run(cut *c)
{
    int64_t rank = c->kth, less = 0, equal = 0;
    int top = (c->bits - 1) / DIGIT * DIGIT;

    c->n_pieces = (c->n - 1) / PIECE + 1;
    mr__cpu_for(c->n_pieces, 1, keys_piece, c);
    c->left = c->key;
    c->n_left = c->n;
    c->found = 0;
    c->less = c->equal = 0;
    for (c->shift = top; c->shift >= 0; c->shift -= DIGIT)
        digit_find(c, &rank);
    mr__cpu_for(c->n_pieces, 1, sides_piece, c);
    for (int64_t p = 0; p < c->n_pieces; p++) {
        int64_t n_less = c->count[2 * p], n_equal = c->count[2 * p + 1];

        c->count[2 * p] = less;
        c->count[2 * p + 1] = equal;
        less += n_less;
        equal += n_equal;
    }
    mr__cpu_for(c->n_pieces, 1, deal_piece, c);
}

typedef struct rows {
    cut c;
    mr_walk walk; /* input, output, without the axis */
    _Atomic bool failed;
} rows;

static void
rows_piece(void *ctx, int64_t begin, int64_t end)
{
    rows *r = ctx;
    cut c = r->c;
    mr_walk w = r->walk;
    int64_t n_pieces = (c.n - 1) / PIECE + 1;
    uint64_t *memory = mr__alloc_array((size_t)(3 * c.n + n_pieces * N_DIGITS),
                                       sizeof *memory);

    if (!memory) {
        /* relaxed: read after the loop, whose end orders it */
        atomic_store_explicit(&r->failed, true, memory_order_relaxed);
        return;
    }
    c.count = (int64_t *)(void *)(memory + 3 * c.n);
    mr__walk_seek(&w, begin);
    for (int64_t row = begin; row < end; row++, mr__walk_next(&w)) {
        c.key = memory;
        c.spare = memory + c.n;
        c.from = r->c.from + w.offset[0] * c.item;
        c.to = r->c.to + w.offset[1];
        row_run(&c);
    }
    mr__dealloc(memory);
}

mr_code
mr__cpu_partition_places(const mr_kernel_args *a)
{
    const mr_partition_params *p = a->params;
    const mr_kernel_view *x = &a->in[0], *out = &a->out[0];
    uint32_t skip = 1U << p->axis;
    int64_t n_rows, grain;
    rows r = {.c = {.dtype = x->dtype,
                    .bits = mr__key_bits(x->dtype),
                    .n = x->dim[p->axis],
                    .kth = p->kth,
                    .first = p->tail ? p->kth : 0,
                    .step = x->stride[p->axis],
                    .item = mr__dtype_size(x->dtype),
                    .from = x->data,
                    .to = out->data,
                    .to_step = out->stride[p->axis]}};

    if (out->size == 0)
        return MR_OK;
    mr__walk_init(&r.walk, x->ndim, x->dim, skip);
    mr__walk_add(&r.walk, x->ndim, x->stride, skip);
    mr__walk_add(&r.walk, x->ndim, out->stride, skip);
    n_rows = mr__walk_size(&r.walk);
    atomic_init(&r.failed, false);
    grain = mr__cpu_grain(2000.0 + 5.0 * (double)r.c.n);
    /* long rows go in pieces: one after the other, from this thread */
    if (r.c.n > SHORT_ROW && n_rows < 16)
        rows_piece(&r, 0, n_rows);
    else
        mr__cpu_for(n_rows, grain, rows_piece, &r);
    if (atomic_load_explicit(&r.failed, memory_order_relaxed))
        return mr__fail(MR_E_MEMORY, "no memory to order rows of %lld elements",
                        (long long)r.c.n);
    return MR_OK;
}

double
mr__cpu_partition_cost(const mr_kernel_args *a)
{
    return 1000.0 + 5.0 * (double)a->in[0].size;
}
