/* SPDX-License-Identifier: Apache-2.0
 *
 * compact.c -- where a mask is True: places, packed entries, entries spread
 * out again; places and entries repeated by counts.
 *
 * A row (the last axis of a mask or of counts) is cut into blocks of fixed
 * length.  A first pass counts in each block, sums of the counts say where
 * each block's part of the result begins, a second pass writes: so the result
 * depends on no thread.  The second pass finds the places of 64 entries
 * without a branch, and the operator moves what belongs to them.
 * Called by: device.c.
 */
#include <stdatomic.h>
#include <string.h>

#include "array/dtype.h"
#include "base/error.h"
#include "cpu/cpu.h"
#include "ops/params.h"

enum { BLOCK = 1 << 14, CHUNK = 64 };

typedef struct compact compact;
/* n places of a row, which are results k, k + 1, ... of that row. */
typedef void put_fn(const compact *c, int64_t row, int64_t k,
                    const int64_t *place, int64_t n);

/* Entries (batch, axis, inner) of an array: those of one place together. */
typedef struct entries {
    const mr_kernel_view *x;
    int32_t axis;   /* axes before it are batch, those behind it inner */
    int64_t item;   /* bytes of an element */
    int64_t bytes;  /* of an entry, when it lies in one piece; else 0 */
    mr_walk inner;  /* elements of an entry */
    int64_t stride; /* bytes from entry to entry */
} entries;

struct compact {
    const mr_kernel_view *rows; /* the mask, or the counts */
    int64_t n_rows, n, n_blocks, size;
    int64_t *start; /* n_rows x (n_blocks + 1): results before each block */
    put_fn *put;
    entries from, to;
    char *out;
    bool wide; /* places are int64, else int32 */
    _Atomic int64_t bad;
};

static void
compact_init(compact *c, const mr_kernel_args *a, int64_t size)
{
    const mr_kernel_view *rows = &a->in[a->n_in - 1];

    memset(c, 0, sizeof *c);
    c->rows = rows;
    c->n = rows->dim[rows->ndim - 1];
    c->n_rows = 1;
    for (int32_t k = 0; k < rows->ndim - 1; k++)
        c->n_rows *= rows->dim[k];
    c->n_blocks = (c->n + BLOCK - 1) / BLOCK;
    c->size = size;
    c->start = a->workspace;
    c->out = a->out[0].data;
}

size_t
mr__cpu_compact_workspace(const mr_kernel_args *a)
{
    compact c;

    compact_init(&c, a, 0);
    return (size_t)(c.n_rows * (c.n_blocks + 1)) * sizeof(int64_t);
}

double
mr__cpu_compact_cost(const mr_kernel_args *a)
{
    return 300.0 + 1.5 * (double)a->in[a->n_in - 1].size +
           2.0 * (double)a->out[0].size;
}

/* ---- counting ------------------------------------------------------------ */

static void
block_range(const compact *c, int64_t i, int64_t *row, int64_t *block,
            int64_t *begin, int64_t *end)
{
    *row = i / c->n_blocks;
    *block = i % c->n_blocks;
    *begin = *block * BLOCK;
    *end = *begin + BLOCK < c->n ? *begin + BLOCK : c->n;
}

static int64_t *
start_at(const compact *c, int64_t row, int64_t block)
{
    return &c->start[row * (c->n_blocks + 1) + block];
}

static void
count_piece(void *ctx, int64_t from, int64_t to)
{
    const compact *c = ctx;
    const uint8_t *mask = c->rows->data;

    for (int64_t i = from; i < to; i++) {
        int64_t row, block, begin, end;
        uint32_t n = 0;

        block_range(c, i, &row, &block, &begin, &end);
        for (int64_t k = row * c->n + begin; k < row * c->n + end; k++)
            n += mask[k] != 0;
        *start_at(c, row, block + 1) = n;
    }
}

/* Counts of blocks to where each begins. */
static void
add_up(const compact *c)
{
    for (int64_t row = 0; row < c->n_rows; row++) {
        *start_at(c, row, 0) = 0;
        for (int64_t b = 1; b <= c->n_blocks; b++)
            *start_at(c, row, b) += *start_at(c, row, b - 1);
    }
}

static int64_t
block_grain(const compact *c)
{
    int64_t n = c->n < BLOCK ? c->n : BLOCK;

    return mr__cpu_grain(10.0 + 1.5 * (double)n);
}

/* ---- writing ------------------------------------------------------------- */

static void
write_piece(void *ctx, int64_t from, int64_t to)
{
    const compact *c = ctx;
    const uint8_t *mask = c->rows->data;

    for (int64_t i = from; i < to; i++) {
        int64_t row, block, begin, end, k, place[CHUNK];

        block_range(c, i, &row, &block, &begin, &end);
        k = *start_at(c, row, block);
        for (int64_t at = begin; at < end && k < c->size; at += CHUNK) {
            int64_t stop = at + CHUNK < end ? at + CHUNK : end, n = 0;

            for (int64_t j = at; j < stop; j++) {
                place[n] = j;
                n += mask[row * c->n + j] != 0;
            }
            if (n > c->size - k)
                n = c->size - k;
            c->put(c, row, k, place, n);
            k += n;
        }
    }
}

static void
compact_run(compact *c)
{
    int64_t n = c->n_rows * c->n_blocks;

    mr__cpu_for(n, block_grain(c), count_piece, c);
    add_up(c);
    mr__cpu_for(n, block_grain(c), write_piece, c);
}

/* Results of a row that no True entry gave. */
static int64_t
results_of(const compact *c, int64_t row)
{
    int64_t n = *start_at(c, row, c->n_blocks);

    return n < c->size ? n : c->size;
}

typedef struct tails {
    const compact *c;
    int64_t item; /* bytes of a result */
    const void *value;
    int64_t value_bytes;
} tails;

static void
tails_piece(void *ctx, int64_t begin, int64_t end)
{
    const tails *t = ctx;
    const compact *c = t->c;

    for (int64_t row = begin; row < end; row++) {
        int64_t n = results_of(c, row);

        mr__cpu_fill(c->out + (row * c->size + n) * t->item,
                     (c->size - n) * t->item / t->value_bytes, t->value,
                     t->value_bytes);
    }
}

/* The results of each row that no entry gave. */
static void
fill_tails(const compact *c, int64_t item, const void *value, int64_t bytes)
{
    tails t = {c, item, value, bytes};

    if (c->n_rows == 1)
        tails_piece(&t, 0, 1);
    else
        mr__cpu_for(c->n_rows, mr__cpu_grain(20.0), tails_piece, &t);
}

/* -- mask_places ----------------------------------------------------------- */

static void
put_places(const compact *c, int64_t row, int64_t k, const int64_t *place,
           int64_t n)
{
    int64_t at = row * c->size + k;

    if (c->wide) {
        memcpy((int64_t *)(void *)c->out + at, place,
               (size_t)n * sizeof *place);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)(void *)c->out)[at + i] = (int32_t)place[i];
}

mr_code
mr__cpu_mask_places(const mr_kernel_args *a)
{
    const mr_mask_places_params *p = a->params;
    int32_t narrow = (int32_t)p->fill;
    compact c;

    compact_init(&c, a, p->size);
    c.wide = p->dtype == MR_INT64;
    c.put = put_places;
    compact_run(&c);
    if (c.wide)
        fill_tails(&c, 8, &p->fill, 8);
    else
        fill_tails(&c, 4, &narrow, 4);
    return MR_OK;
}

/* ---- entries ------------------------------------------------------------- */

static void
entries_init(entries *e, const mr_kernel_view *x, int32_t axis)
{
    int64_t size = 1;
    uint32_t outer = (1U << (axis + 1)) - 1U;

    e->x = x;
    e->axis = axis;
    e->item = mr__dtype_size(x->dtype);
    e->stride = x->stride[axis] * e->item;
    mr__walk_init(&e->inner, x->ndim, x->dim, outer);
    mr__walk_add(&e->inner, x->ndim, x->stride, outer);
    e->bytes = e->item;
    for (int32_t k = x->ndim - 1; k > axis; k--) {
        if (x->dim[k] != 1 && x->stride[k] != size)
            e->bytes = 0;
        size *= x->dim[k];
    }
    if (e->bytes != 0)
        e->bytes = size * e->item;
}

/* Where a row's entries begin. */
static char *
entries_row(const entries *e, int64_t row)
{
    int64_t at = 0;

    for (int32_t k = e->axis - 1; k >= 0; k--) {
        at += row % e->x->dim[k] * e->x->stride[k];
        row /= e->x->dim[k];
    }
    return (char *)e->x->data + at * e->item;
}

#define MOVE(type)                                                             \
    for (int64_t i = 0; i < n; i++)                                            \
    memcpy(to + (spread ? place[i] : i) * (int64_t)sizeof(type),               \
           from + (spread ? i * (int64_t)sizeof(type) : place[i] * stride),    \
           sizeof(type))

/* Entries of one element: the loops that matter.  Packed at one side, at
 * `place` on the other: spread says that it is the target's. */
static bool
move_items(char *to, const char *from, int64_t stride, int64_t item,
           const int64_t *place, int64_t n, bool spread)
{
    switch (item) {
    case 1:
        MOVE(uint8_t);
        return true;
    case 2:
        MOVE(uint16_t);
        return true;
    case 4:
        MOVE(uint32_t);
        return true;
    case 8:
        MOVE(uint64_t);
        return true;
    default:
        return false;
    }
}

static void
move_entry(const entries *e, char *to, const char *from, int64_t bytes)
{
    mr_walk w = e->inner;
    int64_t n = mr__walk_size(&w);

    if (e->bytes != 0 || bytes == 0) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++, mr__walk_next(&w))
        memcpy(to + i * e->item, from + w.offset[0] * e->item, (size_t)e->item);
}

/* -- mask_compress --------------------------------------------------------- */

static void
put_packed(const compact *c, int64_t row, int64_t k, const int64_t *place,
           int64_t n)
{
    const entries *e = &c->from;
    int64_t bytes = c->to.bytes;
    char *to = c->out + (row * c->size + k) * bytes;
    const char *from = entries_row(e, row);

    if (e->bytes == bytes &&
        move_items(to, from, e->stride, bytes, place, n, false))
        return;
    for (int64_t i = 0; i < n; i++)
        move_entry(e, to + i * bytes, from + place[i] * e->stride, bytes);
}

mr_code
mr__cpu_mask_compress(const mr_kernel_args *a)
{
    const mr_mask_size_params *p = a->params;
    int32_t axis = a->in[1].ndim - 1;
    const uint8_t zero = 0;
    compact c;

    compact_init(&c, a, p->size);
    entries_init(&c.from, &a->in[0], axis);
    entries_init(&c.to, &a->out[0], axis);
    c.put = put_packed;
    if (a->out[0].size == 0)
        return MR_OK;
    compact_run(&c);
    fill_tails(&c, c.to.bytes, &zero, 1);
    return MR_OK;
}

/* -- mask_expand ----------------------------------------------------------- */

static void
put_spread(const compact *c, int64_t row, int64_t k, const int64_t *place,
           int64_t n)
{
    const entries *e = &c->from;
    int64_t bytes = c->to.bytes;
    char *to = c->out + row * c->n * bytes;
    const char *from = entries_row(e, row) + k * e->stride;

    if (e->bytes == bytes && e->stride == bytes &&
        move_items(to, from, 0, bytes, place, n, true))
        return;
    for (int64_t i = 0; i < n; i++)
        move_entry(e, to + place[i] * bytes, from + i * e->stride, bytes);
}

/* Each row has as many values as its mask asks for. */
static mr_code
check_enough(const compact *c)
{
    for (int64_t row = 0; row < c->n_rows; row++) {
        int64_t n = *start_at(c, row, c->n_blocks);

        if (n > c->size) /* the contract's RuntimeError */
            return mr__fail(MR_E_STATE,
                            "%lld values for a mask with %lld True entries: "
                            "needs as many, or one for all",
                            (long long)c->size, (long long)n);
    }
    return MR_OK;
}

mr_code
mr__cpu_mask_expand(const mr_kernel_args *a)
{
    const mr_mask_expand_params *p = a->params;
    int32_t axis = a->in[1].ndim - 1;
    const uint8_t zero = 0;
    compact c;

    compact_init(&c, a, a->in[0].dim[axis]);
    entries_init(&c.from, &a->in[0], axis);
    entries_init(&c.to, &a->out[0], axis);
    c.put = put_spread;
    mr__cpu_for(c.n_rows * c.n_blocks, block_grain(&c), count_piece, &c);
    add_up(&c);
    if (p->exact && check_enough(&c) != MR_OK)
        return mr__error_code();
    mr__cpu_fill(c.out, a->out[0].size * c.to.item, &zero, 1);
    if (a->in[0].size > 0 && a->out[0].size > 0)
        mr__cpu_for(c.n_rows * c.n_blocks, block_grain(&c), write_piece, &c);
    return MR_OK;
}

/* -- repeat_places --------------------------------------------------------- */

static void
total_piece(void *ctx, int64_t from, int64_t to)
{
    compact *c = ctx;
    const int64_t *count = c->rows->data;

    for (int64_t i = from; i < to; i++) {
        int64_t row, block, begin, end, n = 0;

        block_range(c, i, &row, &block, &begin, &end);
        for (int64_t k = row * c->n + begin; k < row * c->n + end; k++) {
            int64_t more = count[k] < c->size ? count[k] : c->size;

            if (more < 0)
                /* relaxed: read after the loop, whose end orders it */
                atomic_store_explicit(&c->bad, count[k], memory_order_relaxed);
            /* beyond the size nothing is written: no overflow either */
            n = n + more < c->size ? n + more : c->size;
        }
        *start_at(c, row, block + 1) = n;
    }
}

static void
repeat_piece(void *ctx, int64_t from, int64_t to)
{
    const compact *c = ctx;
    const int64_t *count = c->rows->data;

    for (int64_t i = from; i < to; i++) {
        int64_t row, block, begin, end, k;

        block_range(c, i, &row, &block, &begin, &end);
        k = *start_at(c, row, block);
        for (int64_t j = begin; j < end && k < c->size; j++) {
            int64_t n = count[row * c->n + j];

            n = n < c->size - k ? n : c->size - k;
            for (int64_t m = 0; m < n; m++)
                ((int64_t *)(void *)c->out)[row * c->size + k + m] = j;
            k += n;
        }
    }
}

/* The counts added up; a negative one is an error. */
static mr_code
add_counts(compact *c)
{
    int64_t bad;

    atomic_init(&c->bad, 0);
    mr__cpu_for(c->n_rows * c->n_blocks, block_grain(c), total_piece, c);
    bad = atomic_load_explicit(&c->bad, memory_order_relaxed);
    if (bad < 0)
        return mr__fail(MR_E_VALUE, "%lld repeats, needs 0 or more",
                        (long long)bad);
    add_up(c);
    return MR_OK;
}

mr_code
mr__cpu_repeat_places(const mr_kernel_args *a)
{
    const mr_mask_size_params *p = a->params;
    compact c;
    int64_t last;

    compact_init(&c, a, p->size);
    if (add_counts(&c) != MR_OK)
        return mr__error_code();
    mr__cpu_for(c.n_rows * c.n_blocks, block_grain(&c), repeat_piece, &c);
    last = c.n - 1;
    fill_tails(&c, 8, &last, 8);
    return MR_OK;
}

/* -- repeat_entries -------------------------------------------------------- */

/* n results from k on, all of them entry j of a row. */
static void
put_repeated(const compact *c, int64_t row, int64_t k, int64_t j, int64_t n)
{
    const entries *e = &c->from;
    int64_t bytes = c->to.bytes;
    char *to = c->out + (row * c->size + k) * bytes;
    const char *from = entries_row(e, row) + j * e->stride;

    for (int64_t m = 0; m < n; m++)
        move_entry(e, to + m * bytes, from, bytes);
}

#define REPEAT(type)                                                           \
    for (int64_t j = begin; j < end && k < c->size; j++) {                     \
        int64_t n = count[j];                                                  \
        type v;                                                                \
                                                                               \
        memcpy(&v, from + j * c->from.stride, sizeof v);                       \
        n = n < c->size - k ? n : c->size - k;                                 \
        for (int64_t m = 0; m < n; m++)                                        \
            ((type *)(void *)to)[k + m] = v;                                   \
        k += n;                                                                \
    }

/* A block of entries of one word; false: they are none. */
static bool
repeat_words(const compact *c, int64_t row, int64_t begin, int64_t end)
{
    const int64_t *count = (const int64_t *)c->rows->data + row * c->n;
    const char *from = entries_row(&c->from, row);
    char *to = c->out + row * c->size * c->to.bytes;
    int64_t k = *start_at(c, row, begin / BLOCK);

    if (c->from.bytes == 4 && c->to.bytes == 4) {
        REPEAT(uint32_t)
        return true;
    }
    if (c->from.bytes == 8 && c->to.bytes == 8) {
        REPEAT(uint64_t)
        return true;
    }
    return false;
}

static void
entries_piece(void *ctx, int64_t from, int64_t to)
{
    const compact *c = ctx;
    const int64_t *count = c->rows->data;

    for (int64_t i = from; i < to; i++) {
        int64_t row, block, begin, end, k;

        block_range(c, i, &row, &block, &begin, &end);
        if (repeat_words(c, row, begin, end))
            continue;
        k = *start_at(c, row, block);
        for (int64_t j = begin; j < end && k < c->size; j++) {
            int64_t n = count[row * c->n + j];

            n = n < c->size - k ? n : c->size - k;
            put_repeated(c, row, k, j, n);
            k += n;
        }
    }
}

mr_code
mr__cpu_repeat_entries(const mr_kernel_args *a)
{
    const mr_mask_size_params *p = a->params;
    int32_t axis = a->in[1].ndim - 1;
    compact c;

    compact_init(&c, a, p->size);
    entries_init(&c.from, &a->in[0], axis);
    entries_init(&c.to, &a->out[0], axis);
    if (add_counts(&c) != MR_OK)
        return mr__error_code();
    if (a->out[0].size == 0)
        return MR_OK;
    mr__cpu_for(c.n_rows * c.n_blocks, block_grain(&c), entries_piece, &c);
    for (int64_t row = 0; row < c.n_rows; row++) {
        int64_t n = results_of(&c, row);

        put_repeated(&c, row, n, c.n - 1, c.size - n);
    }
    return MR_OK;
}
