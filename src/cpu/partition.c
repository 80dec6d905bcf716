/* SPDX-License-Identifier: Apache-2.0
 *
 * partition.c -- where the smallest and the largest of a row are: selection.
 *
 * The keys of sort.c, so the order is that of a sort.  A sample gives two keys
 * between which the kth smallest almost surely lies.  One pass over the row
 * counts the keys below the first and keeps those between the two, some
 * hundredths of a long row; the kth is selected among these (if it is not
 * there, everything is kept in a second try).  Another pass deals out the
 * places in their order: those of smaller elements, of equal ones, of larger
 * ones.  A long row is read twice and its keys are stored nowhere: what bounds
 * it is memory.  Pieces are read, counted and dealt on all threads; neither
 * they nor the sample show in the result.
 * Called by: device.c.  Calls: kernels/sort.h, the pool.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/cpu.h"
#include "kernels/sort.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

/* A piece's keys stand in the first cache.  KEPT: so many bytes of keys are
 * stored rather than made twice. */
enum {
    PIECE = 2048,
    SHORT_ROW = 1 << 15,
    MAX_SLOTS = 64,
    BRACKETED = 4096, /* elements of a row, from where on a sample pays */
    MAX_SAMPLE = 4096,
    KEPT = 1 << 17,
    PANEL = 16 /* rows side by side, of at most SHORT_ROW elements */
};

/* Of a piece: the keys below and equal to the kth in all pieces before it;
 * those of its own that may be the kth. */
typedef struct piece {
    int64_t less, equal;
    const char *middle;
    int64_t n_middle, n_last; /* n_last: those equal to the most */
} piece;

typedef struct cut {
    const mr_sort_tier *tier;
    const mr_tier_moves *moves;
    mr_key_form form;
    int64_t n, kth, first; /* first: places from there on are written */
    int64_t step, item;    /* of the row: in elements; bytes */
    const char *from;
    uint32_t *to; /* dense, from place `first` on */
    int word;     /* bytes */
    bool plain;   /* the elements are keys as they are */
    char *keys;   /* of the row; NULL: they are made for each pass */
    char *middle, *copy, *spare;
    int64_t low, high;   /* the kth key is not below, not above */
    int64_t found;       /* the kth key */
    int64_t less, equal; /* than it, in all */
    int64_t n_pieces;
    piece *piece; /* n_pieces + 1 */
} cut;

static int64_t
piece_size(const cut *c, int64_t p)
{
    int64_t left = c->n - p * PIECE;

    return left < PIECE ? left : PIECE;
}

/* Makes the keys of n elements from x on, `step` elements apart. */
static void
keys_make(const cut *c, char *keys, const char *x, int64_t step, int64_t n)
{
    char narrow[PIECE * 2], *raw = c->item == c->word ? keys : narrow;

    if (step != 1) {
        c->moves->gather[__builtin_ctzll((uint64_t)c->item)](raw, x,
                                                             step * c->item, n);
        x = raw;
    }
    if (!c->plain)
        c->tier->keys(keys, x, n, c->form, true);
}

static void
keys_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        int64_t at = p * PIECE;

        keys_make(c, c->keys + at * c->word, c->from + at * c->step * c->item,
                  c->step, piece_size(c, p));
    }
}

/* The keys of a piece: those that there are, else made in `room`. */
static const char *
piece_keys(const cut *c, int64_t p, char *room)
{
    const char *x = c->from + p * PIECE * c->item;

    if (c->keys)
        return c->keys + p * PIECE * c->word;
    if (c->plain)
        return x;
    c->tier->keys(room, x, piece_size(c, p), c->form, true);
    return room;
}

/* ---- the kth key --------------------------------------------------------- */

static int64_t
key_at(const cut *c, const char *keys, int64_t i)
{
    int64_t wide;
    int32_t narrow;

    if (c->word == 8) {
        memcpy(&wide, keys + 8 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, keys + 4 * i, sizeof narrow);
    return narrow;
}

static void
bracket_whole(cut *c)
{
    c->low = c->word == 8 ? INT64_MIN : INT32_MIN;
    c->high = c->word == 8 ? INT64_MAX : INT32_MAX;
}

/* One element of each of n parts of `step` elements, at no regular places. */
#define SAMPLE(type)                                                           \
    for (int64_t i = 0; i < n; i++) {                                          \
        seed = seed * 1664525U + 1013904223U;                                  \
        memcpy(raw + i * (int64_t)sizeof(type),                                \
               from + (i * step +                                              \
                       (int64_t)((uint64_t)seed * (uint64_t)step >> 32)) *     \
                          apart,                                               \
               sizeof(type));                                                  \
    }

/* The keys of a sample, sorted. */
static void
sample_take(const cut *c, char *sample, int64_t count)
{
    int64_t step = c->n / count, item = c->keys ? c->word : c->item;
    int64_t apart = c->keys ? item : c->step * item;
    const char *from = c->keys ? c->keys : c->from;
    _Alignas(64) char raw[PIECE * 8];
    uint32_t seed = (uint32_t)c->n;

    for (int64_t at = 0, n; at < count; at += n, from += n * step * apart) {
        n = count - at < PIECE ? count - at : PIECE;
        if (item == 8)
            SAMPLE(uint64_t)
        else if (item == 4)
            SAMPLE(uint32_t)
        else if (item == 2)
            SAMPLE(uint16_t)
        else
            SAMPLE(uint8_t)
        if (c->keys)
            memcpy(sample + at * item, raw, (size_t)(n * item));
        else
            c->tier->keys(sample + at * c->word, raw, n, c->form, true);
    }
    c->tier->run(sample, c->spare, count);
}

/* Three deviations to each side of where the kth would be in the sample: of
 * 4096, for the median, a twentieth of the row. */
static void
bracket_find(cut *c)
{
    int64_t count = c->n < 1 << 16 ? 256 : c->n < 1 << 20 ? 1024 : MAX_SAMPLE;
    double part = ((double)c->kth + 0.5) / (double)c->n;
    double at = part * (double)count;
    double margin = 3.0 * sqrt(at * (1.0 - part)) + 3.0;
    int64_t low = (int64_t)(at - margin), high = (int64_t)(at + margin);

    bracket_whole(c);
    sample_take(c, c->copy, count);
    if (low > 0)
        c->low = key_at(c, c->copy, low);
    if (high < count)
        c->high = key_at(c, c->copy, high);
}

/* Those that may be the kth, of all pieces of a call one after the other. */
static void
middle_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;
    _Alignas(64) char room[PIECE * 8];
    char *to = c->middle + begin * PIECE * c->word;

    for (int64_t p = begin; p < end; p++) {
        piece *own = &c->piece[p];

        own->middle = to;
        own->n_middle =
            c->tier->between(to, piece_keys(c, p, room), piece_size(c, p),
                             c->low, c->high, &own->less);
        to += own->n_middle * c->word;
    }
}

/* Gathers what may be the kth; false: it is not among them. */
static bool
middle_find(cut *c, int64_t grain, int64_t *less, int64_t *n_middle)
{
    *less = *n_middle = 0;
    mr__cpu_for(c->n_pieces, grain, middle_piece, c);
    for (int64_t p = 0; p < c->n_pieces; p++) {
        *less += c->piece[p].less;
        *n_middle += c->piece[p].n_middle;
    }
    return *less <= c->kth && c->kth < *less + *n_middle;
}

/* How many of each piece's middle are the least and the most that it may have.
 */
static void
ends_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        piece *own = &c->piece[p];
        int64_t low[2], high[2];

        c->tier->rank(own->middle, own->n_middle, c->low, low);
        c->tier->rank(own->middle, own->n_middle, c->high, high);
        own->equal = low[1];
        own->n_last = high[1];
    }
}

/* Much between the two keys is mostly keys equal to one of them, since the
 * sample tells others apart: is one the kth? */
static bool
kth_is_an_end(cut *c, int64_t grain, int64_t less, int64_t n_middle)
{
    int64_t n_first = 0, n_last = 0;

    mr__cpu_for(c->n_pieces, grain, ends_piece, c);
    for (int64_t p = 0; p < c->n_pieces; p++) {
        n_first += c->piece[p].equal;
        n_last += c->piece[p].n_last;
    }
    if (c->kth < less + n_first)
        c->found = c->low;
    else if (c->kth >= less + n_middle - n_last)
        c->found = c->high;
    else
        return false;
    return true;
}

static void
kth_find(cut *c, int64_t grain)
{
    int64_t less, n_middle, at = 0;

    if (c->keys)
        mr__cpu_for(c->n_pieces, grain, keys_piece, c);
    bracket_find(c);
    if (!middle_find(c, grain, &less, &n_middle)) {
        bracket_whole(c);
        (void)middle_find(c, grain, &less, &n_middle);
    }
    c->found = c->low;
    if (c->low == c->high || (c->n >= 1 << 16 && n_middle > c->n / 4 &&
                              kth_is_an_end(c, grain, less, n_middle)))
        return;
    for (int64_t p = 0; p < c->n_pieces; p++) {
        size_t bytes = (size_t)(c->piece[p].n_middle * c->word);

        memcpy(c->copy + at, c->piece[p].middle, bytes);
        at += (int64_t)bytes;
    }
    c->found = c->tier->select(c->copy, c->spare, n_middle, c->kth - less);
}

/* ---- places -------------------------------------------------------------- */

/* How many of each piece are smaller and equal. */
static void
sides_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t p = begin; p < end; p++) {
        piece *own = &c->piece[p];
        int64_t count[2];

        c->tier->rank(own->middle, own->n_middle, c->found, count);
        own->less += count[0];
        own->equal = count[1];
    }
}

static void
deal_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;
    _Alignas(64) char room[PIECE * 8];

    for (int64_t p = begin; p < end; p++) {
        int64_t less = c->piece[p].less, equal = c->piece[p].equal;
        int64_t high = c->less + c->equal + p * PIECE - less - equal;
        int64_t at = c->less + equal - c->first;
        mr_sort_deal d = {.low = c->first > 0 ? NULL : c->to + less,
                          .equal = c->to + (at > 0 ? at : 0),
                          .high = c->to + (high - c->first),
                          .skip = at < 0 ? -at : 0};

        /* nothing of it is wanted */
        if (!d.low && c->piece[p + 1].less - less == piece_size(c, p))
            continue;
        c->tier->deal(&d, piece_keys(c, p, room), piece_size(c, p), c->found,
                      (uint32_t)(p * PIECE));
    }
}

/* A short row, of which all may be the kth. */
static void
row_short(cut *c)
{
    const char *keys = c->keys ? c->keys : c->from;
    mr_sort_deal d = {.low = c->first > 0 ? NULL : c->to};
    int64_t count[2], at;

    assert(keys != NULL);
    if (c->keys)
        keys_piece(c, 0, c->n_pieces);
    memcpy(c->copy, keys, (size_t)(c->n * c->word));
    c->found = c->tier->select(c->copy, c->spare, c->n, c->kth);
    c->tier->rank(keys, c->n, c->found, count);
    at = count[0] - c->first;
    d.equal = c->to + (at > 0 ? at : 0);
    d.high = c->to + at + count[1];
    d.skip = at < 0 ? -at : 0;
    c->tier->deal(&d, keys, c->n, c->found, 0);
}

static void
row_run(cut *c)
{
    int64_t grain;

    if (c->n < BRACKETED) {
        row_short(c);
        return;
    }
    grain = mr__cpu_grain(0.3 * PIECE);
    kth_find(c, grain);
    mr__cpu_for(c->n_pieces, 4 * grain, sides_piece, c);
    c->less = c->equal = 0;
    for (int64_t p = 0; p <= c->n_pieces; p++) {
        int64_t less = c->piece[p].less, equal = c->piece[p].equal;

        c->piece[p].less = c->less;
        c->piece[p].equal = c->equal;
        c->less += p < c->n_pieces ? less : 0;
        c->equal += p < c->n_pieces ? equal : 0;
    }
    mr__cpu_for(c->n_pieces, grain, deal_piece, c);
}

/* ---- rows ---------------------------------------------------------------- */

/* Along an axis that is not the last one, up to PANEL rows whose elements lie
 * side by side are turned, and their places turned back. */
typedef struct rows {
    cut c;
    mr_walk walk; /* input, output, without the axis (or the rows beside) */
    uint32_t *to;
    int64_t from_step, to_step, n_rows;
    int64_t width, n_beside; /* rows of a unit, of those beside each other */
    int64_t n_units;
    char *workspace;
    int64_t n_slots, slot_bytes;
} rows;

static int64_t
part_of(int64_t *at, int64_t bytes)
{
    int64_t part = *at;

    *at += mr__round_up(bytes, 64);
    return part;
}

/* The parts of a slot of workspace; how many bytes it has. */
static int64_t
slot_parts(cut *c, char *slot, bool dense)
{
    int64_t words = c->n * c->word, at = 0;
    bool kept = c->step != 1 || (!c->plain && words <= KEPT);

    c->middle = slot + part_of(&at, words);
    c->copy = slot + part_of(&at, words);
    c->spare = slot + part_of(&at, words);
    c->piece =
        (piece *)(void *)(slot + part_of(&at, (c->n_pieces + 1) *
                                                  (int64_t)sizeof(piece)));
    c->keys = kept ? slot + part_of(&at, words) : NULL;
    c->to = (uint32_t *)(void *)(slot + part_of(&at, dense ? 0 : 4 * c->n));
    return at;
}

/* The turned values and places of a panel, behind the parts of a slot. */
static int64_t
panel_parts(const rows *r, char *panel, char **values, uint32_t **places)
{
    int64_t at = 0, n = r->c.n * r->width;

    *values = panel + part_of(&at, r->width > 1 ? n * r->c.item : 0);
    *places =
        (uint32_t *)(void *)(panel + part_of(&at, r->width > 1 ? 4 * n : 0));
    return at;
}

static void
panel_run(const rows *r, cut *c, int64_t unit, char *values, uint32_t *places)
{
    int64_t blocks = (r->n_beside - 1) / r->width + 1, n_to = c->n - c->first;
    int64_t first = unit % blocks * r->width, width = r->n_beside - first;
    mr_walk w = r->walk;

    mr__walk_seek(&w, unit / blocks);
    width = width < r->width ? width : r->width;
    c->moves->transpose[__builtin_ctzll((uint64_t)c->item)](
        values, c->n * c->item, r->c.from + (w.offset[0] + first) * c->item,
        r->from_step * c->item, width, c->n);
    for (int64_t i = 0; i < width; i++) {
        c->from = values + i * c->n * c->item;
        c->to = places + i * n_to;
        row_run(c);
    }
    c->moves->transpose[2](r->to + w.offset[1] + first, r->to_step * 4, places,
                           n_to * 4, n_to, width);
}

/* Rows [row, last), one after the other. */
static void
single_run(const rows *r, cut *c, int64_t row, int64_t last)
{
    uint32_t *dense = c->to;
    mr_walk w = r->walk;

    for (mr__walk_seek(&w, row); row < last; row++, mr__walk_next(&w)) {
        uint32_t *to = r->to + w.offset[1];

        c->from = r->c.from + w.offset[0] * c->item;
        c->to = r->to_step == 1 ? to : dense;
        row_run(c);
        if (r->to_step != 1)
            c->moves->scatter[2](to, r->to_step * 4, dense, c->n - c->first);
    }
}

static void
slots_piece(void *ctx, int64_t begin, int64_t end)
{
    const rows *r = ctx;

    for (int64_t slot = begin; slot < end; slot++) {
        cut c = r->c;
        int64_t unit = r->n_units * slot / r->n_slots;
        int64_t last = r->n_units * (slot + 1) / r->n_slots;
        char *at = r->workspace + slot * r->slot_bytes, *values;
        uint32_t *places;

        at += slot_parts(&c, at, r->to_step == 1);
        (void)panel_parts(r, at, &values, &places);
        if (r->width == 1)
            single_run(r, &c, unit, last);
        for (; r->width > 1 && unit < last; unit++)
            panel_run(r, &c, unit, values, places);
    }
}

/* Which rows are taken together. */
static void
rows_panels(rows *r)
{
    int32_t k = r->walk.ndim - 1;

    r->width = r->n_beside = 1;
    r->n_units = r->n_rows;
    if (r->c.step == 1 || r->c.n > SHORT_ROW || k < 0 || r->walk.dim[k] < 4 ||
        r->walk.stride[0][k] != 1 || r->walk.stride[1][k] != 1)
        return;
    r->width = PANEL;
    r->n_beside = r->walk.dim[k];
    r->n_units = r->n_rows / r->n_beside * ((r->n_beside - 1) / PANEL + 1);
    r->walk.ndim--;
    r->c.step = 1;
}

static void
rows_plan(const mr_kernel_args *a, rows *r)
{
    const mr_partition_params *p = a->params;
    const mr_kernel_view *x = &a->in[0], *out = &a->out[0];
    uint32_t skip = 1U << p->axis;
    int64_t item = mr__dtype_size(x->dtype), n = x->dim[p->axis];
    int64_t threads = mr__pool_threads();
    uint32_t *places;
    char *values;

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
                      .plain = mr__key_form(x->dtype).kind == MR_KEY_SIGNED &&
                               item >= 4,
                      .n_pieces = (n - 1) / PIECE + 1},
                .to = out->data,
                .from_step = x->stride[p->axis],
                .to_step = out->stride[p->axis],
                .workspace = a->workspace};
    mr__walk_init(&r->walk, x->ndim, x->dim, skip);
    mr__walk_add(&r->walk, x->ndim, x->stride, skip);
    mr__walk_add(&r->walk, x->ndim, out->stride, skip);
    mr__walk_merge(&r->walk);
    r->n_rows = mr__walk_size(&r->walk);
    rows_panels(r);
    r->slot_bytes = slot_parts(&r->c, NULL, r->to_step == 1) +
                    panel_parts(r, NULL, &values, &places);
    r->n_slots = threads < MAX_SLOTS ? threads : MAX_SLOTS;
    if (r->slot_bytes < 1 << 19)
        r->n_slots *= 4; /* the last one is late */
    if (r->n_slots > r->n_units)
        r->n_slots = r->n_units;
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
