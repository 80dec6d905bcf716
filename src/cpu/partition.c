/* SPDX-License-Identifier: Apache-2.0
 *
 * partition.c -- where the smallest and the largest of a row are: selection.
 *
 * The keys of sort.c, so the order is that of a sort: the kth smallest is found
 * by partitions of a copy around sampled pivots; then the places are dealt out
 * in their order: those of smaller elements, of equal ones, of larger ones.
 * Linear in the row (a sort where pivots fail).  Long rows are read, counted
 * and dealt in pieces on all threads; the pieces show in no result.
 * Called by: device.c.  Calls: kernels/sort.h, the pool.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cpu/cpu.h"
#include "kernels/sort.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum { PIECE = 1 << 16, SHORT_ROW = 1 << 15 };

typedef struct cut {
    const mr_sort_tier *tier;
    const mr_tier_moves *moves;
    mr_key_form form;
    int64_t n, kth, first; /* first: places from there on are written */
    int64_t step, item;    /* of the row: in elements; bytes */
    const char *from;
    uint32_t *to; /* dense, from place `first` on */
    int word;     /* bytes */
    char *raw, *keys, *copy, *spare;
    int64_t found;       /* the kth key */
    int64_t less, equal; /* than it, in all */
    int64_t n_pieces;
    int64_t (*count)[2]; /* less, equal: of each piece, then before it */
} cut;

static int64_t
piece_size(const cut *c, int64_t piece)
{
    int64_t left = c->n - piece * PIECE;

    return left < PIECE ? left : PIECE;
}

static void
keys_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        int64_t at = p * PIECE, n = piece_size(c, p);
        const char *x = c->from + at * c->step * c->item;
        char *keys = c->keys + at * c->word;

        if (c->step != 1) {
            char *raw = c->raw + at * c->item;

            c->moves->gather[__builtin_ctzll((uint64_t)c->item)](
                raw, x, c->step * c->item, n);
            x = raw;
        }
        c->tier->keys(keys, x, n, c->form, true);
        memcpy(c->copy + at * c->word, keys, (size_t)(n * c->word));
    }
}

/* How many of each piece are smaller and equal. */
static void
sides_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++)
        c->tier->rank(c->keys + p * PIECE * c->word, piece_size(c, p), c->found,
                      c->count[p]);
}

static void
deal_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        int64_t less = c->count[p][0], equal = c->count[p][1];
        int64_t high = c->less + c->equal + p * PIECE - less - equal;
        int64_t at = c->less + equal - c->first;
        mr_sort_deal d = {.low = c->first > 0 ? NULL : c->to + less,
                          .equal = c->to + (at > 0 ? at : 0),
                          .high = c->to + (high - c->first),
                          .skip = at < 0 ? -at : 0};

        c->tier->deal(&d, c->keys + p * PIECE * c->word, piece_size(c, p),
                      c->found, (uint32_t)(p * PIECE));
    }
}

static void
row_run(cut *c)
{
    c->less = c->equal = 0;
    mr__cpu_for(c->n_pieces, 1, keys_piece, c);
    c->found = c->tier->select(c->copy, c->spare, c->n, c->kth);
    mr__cpu_for(c->n_pieces, 1, sides_piece, c);
    for (int64_t p = 0; p < c->n_pieces; p++) {
        int64_t less = c->count[p][0], equal = c->count[p][1];

        c->count[p][0] = c->less;
        c->count[p][1] = c->equal;
        c->less += less;
        c->equal += equal;
    }
    mr__cpu_for(c->n_pieces, 1, deal_piece, c);
}

typedef struct rows {
    cut c;
    mr_walk walk; /* input, output, without the axis */
    uint32_t *to;
    int64_t to_step;
    _Atomic bool failed;
} rows;

/* What a row needs: its parts, in bytes that are whole cache lines. */
static char *
memory_of(cut *c)
{
    int64_t words = (c->n * c->word + 63) / 64 * 64;
    int64_t counts = (c->n_pieces * 16 + 63) / 64 * 64;
    int64_t raw = c->step == 1 ? 0 : (c->n * c->item + 63) / 64 * 64;
    char *memory = mr__alloc((size_t)(3 * words + counts + raw + 4 * c->n));

    if (!memory)
        return NULL;
    c->keys = memory;
    c->copy = c->keys + words;
    c->spare = c->copy + words;
    c->count = (int64_t(*)[2])(void *)(c->spare + words);
    c->raw = c->spare + words + counts;
    c->to = (uint32_t *)(void *)(c->raw + raw);
    return memory;
}

static void
rows_piece(void *ctx, int64_t begin, int64_t end)
{
    rows *r = ctx;
    cut c = r->c;
    mr_walk w = r->walk;
    char *memory = memory_of(&c);
    uint32_t *dense = c.to;

    if (!memory) {
        /* relaxed: read after the loop, whose end orders it */
        atomic_store_explicit(&r->failed, true, memory_order_relaxed);
        return;
    }
    mr__walk_seek(&w, begin);
    for (int64_t row = begin; row < end; row++, mr__walk_next(&w)) {
        uint32_t *to = r->to + w.offset[1];

        c.from = r->c.from + w.offset[0] * c.item;
        c.to = r->to_step == 1 ? to : dense;
        row_run(&c);
        if (r->to_step != 1)
            c.moves->scatter[2](to, r->to_step * 4, dense, c.n - c.first);
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
    rows r = {.c = {.tier = mr__sort_of(mr__dtype_size(x->dtype) == 8 ? 8 : 4),
                    .moves = mr__tier()->moves,
                    .form = mr__key_form(x->dtype),
                    .n = x->dim[p->axis],
                    .kth = p->kth,
                    .first = p->tail ? p->kth : 0,
                    .step = x->stride[p->axis],
                    .item = mr__dtype_size(x->dtype),
                    .from = x->data},
              .to = out->data,
              .to_step = out->stride[p->axis]};

    if (out->size == 0)
        return MR_OK;
    mr__walk_init(&r.walk, x->ndim, x->dim, skip);
    mr__walk_add(&r.walk, x->ndim, x->stride, skip);
    mr__walk_add(&r.walk, x->ndim, out->stride, skip);
    n_rows = mr__walk_size(&r.walk);
    r.c.word = r.c.item == 8 ? 8 : 4;
    r.c.n_pieces = (r.c.n - 1) / PIECE + 1;
    atomic_init(&r.failed, false);
    grain = mr__cpu_grain(500.0 + 2.0 * (double)r.c.n);
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
    return 1000.0 + 2.0 * (double)a->in[0].size;
}
