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
#include <string.h>

#include "base/pool.h"
#include "cpu/cpu.h"
#include "kernels/sort.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum { PIECE = 1 << 16, SHORT_ROW = 1 << 15, MAX_SLOTS = 64 };

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
    int64_t to_step, n_rows;
    char *workspace;
    int64_t n_slots, slot_bytes;
} rows;

static int64_t
lines(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* The parts of a slot of workspace; how many bytes it has. */
static int64_t
slot_parts(cut *c, char *slot, bool dense)
{
    int64_t words = lines(c->n * c->word), at = 3 * words;

    c->keys = slot;
    c->copy = slot + words;
    c->spare = slot + 2 * words;
    c->count = (int64_t(*)[2])(void *)(slot + at);
    at += lines(c->n_pieces * 16);
    c->raw = slot + at;
    at += c->step == 1 ? 0 : lines(c->n * c->item);
    c->to = (uint32_t *)(void *)(slot + at);
    return at + (dense ? 0 : lines(4 * c->n));
}

static void
slots_piece(void *ctx, int64_t begin, int64_t end)
{
    const rows *r = ctx;

    for (int64_t slot = begin; slot < end; slot++) {
        cut c = r->c;
        mr_walk w = r->walk;
        int64_t row = r->n_rows * slot / r->n_slots;
        int64_t last = r->n_rows * (slot + 1) / r->n_slots;
        uint32_t *dense;

        (void)slot_parts(&c, r->workspace + slot * r->slot_bytes,
                         r->to_step == 1);
        dense = c.to;
        for (mr__walk_seek(&w, row); row < last; row++, mr__walk_next(&w)) {
            uint32_t *to = r->to + w.offset[1];

            c.from = r->c.from + w.offset[0] * c.item;
            c.to = r->to_step == 1 ? to : dense;
            row_run(&c);
            if (r->to_step != 1)
                c.moves->scatter[2](to, r->to_step * 4, dense, c.n - c.first);
        }
    }
}

static void
rows_plan(const mr_kernel_args *a, rows *r)
{
    const mr_partition_params *p = a->params;
    const mr_kernel_view *x = &a->in[0], *out = &a->out[0];
    uint32_t skip = 1U << p->axis;
    int64_t item = mr__dtype_size(x->dtype), n = x->dim[p->axis];
    int64_t threads = mr__pool_threads();

    *r = (rows){.c = {.tier = mr__sort_of(item == 8 ? 8 : 4),
                      .moves = mr__tier()->moves,
                      .form = mr__key_form(x->dtype),
                      .n = n,
                      .kth = p->kth,
                      .first = p->tail ? p->kth : 0,
                      .step = x->stride[p->axis],
                      .item = item,
                      .from = x->data,
                      .word = item == 8 ? 8 : 4,
                      .n_pieces = (n - 1) / PIECE + 1},
                .to = out->data,
                .to_step = out->stride[p->axis],
                .workspace = a->workspace};
    mr__walk_init(&r->walk, x->ndim, x->dim, skip);
    mr__walk_add(&r->walk, x->ndim, x->stride, skip);
    mr__walk_add(&r->walk, x->ndim, out->stride, skip);
    r->n_rows = mr__walk_size(&r->walk);
    r->slot_bytes = slot_parts(&r->c, NULL, r->to_step == 1);
    r->n_slots = threads < MAX_SLOTS ? threads : MAX_SLOTS;
    if (r->slot_bytes < 1 << 19)
        r->n_slots *= 4; /* the last one is late */
    if (r->n_slots > r->n_rows)
        r->n_slots = r->n_rows;
    /* long rows go in pieces: one after the other, from this thread */
    if (n > SHORT_ROW && r->n_rows < 16)
        r->n_slots = 1;
}

size_t
mr__cpu_partition_workspace(const mr_kernel_args *a)
{
    rows r;

    if (a->out[0].size == 0)
        return 0;
    rows_plan(a, &r);
    return (size_t)(r.n_slots * r.slot_bytes);
}

mr_code
mr__cpu_partition_places(const mr_kernel_args *a)
{
    rows r;

    if (a->out[0].size == 0)
        return MR_OK;
    rows_plan(a, &r);
    mr__cpu_for(r.n_slots, a->in[0].size < 8192 ? r.n_slots : 1, slots_piece,
                &r);
    return MR_OK;
}

double
mr__cpu_partition_cost(const mr_kernel_args *a)
{
    return 1000.0 + 2.0 * (double)a->in[0].size;
}
