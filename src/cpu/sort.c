/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.c -- sort and argsort.
 *
 * Values become signed words of the same order (kernels/sort.h); for argsort
 * the place stands in a word's low bits, so equal values keep their order.
 * Where a 64-bit key and the place do not fit, the word holds the key's high
 * bits above the least key, and what is equal there is sorted once more by the
 * low ones.  sort puts -0 before +0; for argsort and complex numbers they are
 * equal.  complex128 goes by pairs (radix.c): by the imaginary part, then,
 * keeping that order, by the real one.
 *
 * Rows are shared out among slots of workspace.  Along an axis that is not the
 * last one, PANEL rows side by side are turned, sorted and turned back; rows of
 * at most MR_SORT_ROWS elements become columns, which are sorted side by side.
 * Long rows are cut up themselves (words.c).
 * Called by: device.c.  Calls: kernels/sort.h, words.c, radix.c, keys.c.
 */
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/cpu.h"
#include "cpu/keys.h"
#include "cpu/radix.h"
#include "cpu/words.h"
#include "kernels/sort.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum {
    MAX_SLOTS = 64,
    BIG_ROW = 1 << 17,
    CHUNK = 1 << 15,
    PANEL = 16, /* rows side by side */
    WIDE = 256  /* short rows side by side */
};

/* What is sorted. */
typedef enum how {
    BY_VALUE,      /* keys alone */
    BY_PLACE,      /* keys of 32 bits with their places */
    BY_WIDE_PLACE, /* keys of 64 bits with their places */
    BY_PAIR,       /* complex128; more than 2^31 */
} how;

/* How rows are taken. */
typedef enum shape {
    SINGLE,  /* one after the other */
    TURNED,  /* PANEL at a time: neighbours are adjacent in memory */
    COLUMNS, /* and what follows: short ones, WIDE at a time; neighbours
                adjacent */
    TINY,    /* short ones, WIDE at a time, all in a row */
    SHORT,   /* short ones, WIDE at a time, each adjacent in itself */
} shape;

typedef struct plan {
    mr_dtype dtype;
    mr_key_form form;
    const mr_sort_tier *tier, *narrow;
    const mr_tier_moves *moves;
    how how;
    shape shape;
    bool argsort, complex;
    int word, bits; /* bytes of a word; of a place: bits */
    const char *from;
    char *to;
    int64_t n, from_stride, to_stride, item, to_item;
    mr_walk walk;                       /* input, output, without the rows */
    int64_t width, n_beside, beside[2]; /* rows a unit; neighbours; strides */
    int64_t n_units, n_slots, slot_bytes;
    int64_t raw, results, keys, words, spare; /* offsets in a slot; -1: none */
    char *workspace;
} plan;

/* One row on its way; all but `from` and `to` are dense. */
typedef struct row {
    const plan *s;
    const char *from;
    char *to;
    int64_t from_step, to_step; /* bytes */
    char *raw, *results, *keys, *words, *spare;
    int64_t least;     /* key */
    int cut;           /* low bits of a key that are not in the word */
    const char *order; /* BY_PAIR: earlier places, or NULL */
    int part;
} row;

/* Log2 of 1, 2, 4, 8, 16. */
static int
size_row(int64_t item)
{
    return __builtin_ctzll((unsigned long long)item);
}

/* All of a row, in pieces if it is long. */
static void
row_each(row *r, mr_cpu_body *body)
{
    if (r->s->n >= BIG_ROW)
        mr__cpu_for(r->s->n, CHUNK, body, r);
    else
        body(r, 0, r->s->n);
}

/* ---- from values to words ------------------------------------------------ */

/* The values from `begin` on, side by side. */
static const char *
row_values(const row *r, int64_t begin, int64_t end)
{
    int64_t item = r->s->item;

    if (r->from_step == item)
        return r->from + begin * item;
    r->s->moves->gather[size_row(item)](r->raw + begin * item,
                                        r->from + begin * r->from_step,
                                        r->from_step, end - begin);
    return r->raw + begin * item;
}

static void
encode_values(void *ctx, int64_t begin, int64_t end)
{
    const row *r = ctx;
    const plan *s = r->s;

    s->tier->keys(r->words + begin * s->word, row_values(r, begin, end),
                  end - begin, s->form, false);
}

static void
encode_places(void *ctx, int64_t begin, int64_t end)
{
    const row *r = ctx;
    const plan *s = r->s;
    char *keys = r->keys + 4 * begin;

    s->narrow->keys(keys, row_values(r, begin, end), end - begin, s->form,
                    true);
    s->tier->pack(r->words + begin * s->word, (const int32_t *)(void *)keys,
                  end - begin, s->bits, begin, 1);
}

static void
encode_wide(void *ctx, int64_t begin, int64_t end)
{
    const row *r = ctx;
    const plan *s = r->s;
    const char *x = row_values(r, begin, end);
    int64_t *keys = (int64_t *)(void *)r->keys;

    if (!s->complex) {
        s->tier->keys(keys + begin, x, end - begin, s->form, true);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        keys[i] = (int64_t)(mr__key_at(s->dtype, x, i - begin, 0) ^
                            0x8000000000000000ULL);
}

/* The word of a key: its high bits above the least one, and the place. */
static void
pack_wide(void *ctx, int64_t begin, int64_t end)
{
    const row *r = ctx;
    const int64_t *keys = (const int64_t *)(const void *)r->keys;
    uint64_t *words = (uint64_t *)(void *)r->words;
    int cut = r->cut, bits = r->s->bits;
    uint64_t least = (uint64_t)r->least;

    for (int64_t i = begin; i < end; i++)
        words[i] = ((uint64_t)keys[i] - least) >> cut << bits | (uint64_t)i;
}

/* How many low bits of the keys must stay out. */
static void
cut_find(row *r)
{
    const int64_t *keys = (const int64_t *)(const void *)r->keys;
    int64_t least = keys[0], most = keys[0];
    int range;

    for (int64_t i = 1; i < r->s->n; i++) {
        least = keys[i] < least ? keys[i] : least;
        most = keys[i] > most ? keys[i] : most;
    }
    range = least == most
                ? 0
                : 64 - __builtin_clzll((uint64_t)most - (uint64_t)least);
    r->least = least;
    r->cut = range + r->s->bits > 63 ? range + r->s->bits - 63 : 0;
}

/* A short row: its places in order. */
static void
places_insert(const int64_t *keys, int64_t n, uint32_t *place)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t j = i;

        for (; j > 0 && keys[place[j - 1]] > keys[i]; j--)
            place[j] = place[j - 1];
        place[j] = (uint32_t)i;
    }
}

/* The words [begin, end) have equal high bits: sorts them by the low ones,
 * which fit, since at most one bit more than a place has was cut. */
static void
run_settle(const row *r, uint64_t *words, int64_t begin, int64_t end)
{
    const int64_t *keys = (const int64_t *)(const void *)r->keys;
    uint64_t mask = (1ULL << r->s->bits) - 1, low = (1ULL << r->cut) - 1;
    char *run = (char *)(words + begin), *sorted;

    for (int64_t i = begin; i < end; i++) {
        uint64_t place = words[i] & mask;
        uint64_t key = (uint64_t)keys[place] - (uint64_t)r->least;

        words[i] = (key & low) << r->s->bits | place;
    }
    sorted = mr__words_sort(run, r->spare + 8 * begin, end - begin, 8);
    if (sorted != run)
        memcpy(run, sorted, (size_t)(end - begin) * 8);
}

static void
runs_settle(row *r)
{
    uint64_t *words = (uint64_t *)(void *)r->words;
    int bits = r->s->bits;
    int64_t n = r->s->n;

    for (int64_t i = 0, j; i < n; i = j) {
        uint64_t high = words[i] >> bits;

        for (j = i + 1; j < n && words[j] >> bits == high; j++)
            ;
        if (j > i + 1)
            run_settle(r, words, i, j);
    }
}

/* ---- from words to results ----------------------------------------------- */

/* Where results from `begin` on are made; they go on from there. */
static char *
row_results(const row *r, int64_t begin)
{
    int64_t item = r->s->to_item;

    return (r->to_step == item ? r->to : r->results) + begin * item;
}

static void
results_move(const row *r, int64_t begin, int64_t end)
{
    int64_t item = r->s->to_item;

    if (r->to_step != item)
        r->s->moves->scatter[size_row(item)](
            r->to + begin * r->to_step, r->to_step, r->results + begin * item,
            end - begin);
}

static void
decode_values(void *ctx, int64_t begin, int64_t end)
{
    const row *r = ctx;
    const plan *s = r->s;

    s->tier->values(row_results(r, begin), r->words + begin * s->word,
                    end - begin, s->form);
    results_move(r, begin, end);
}

static void
decode_places(void *ctx, int64_t begin, int64_t end)
{
    const row *r = ctx;
    const plan *s = r->s;
    const char *words = r->words + begin * s->word;

    if (s->argsort) {
        s->tier->places((uint32_t *)(void *)row_results(r, begin), words,
                        end - begin, s->bits);
        results_move(r, begin, end);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        uint64_t word;

        memcpy(&word, r->words + 8 * i, sizeof word);
        word &= (1ULL << s->bits) - 1;
        memcpy(r->to + i * r->to_step, r->from + (int64_t)word * r->from_step,
               (size_t)s->item);
    }
}

/* ---- complex128 ---------------------------------------------------------- */

static int64_t
pair_place(const char *pairs, int64_t i)
{
    int64_t place;

    memcpy(&place, pairs + 16 * i + 8, sizeof place);
    return place;
}

static void
encode_pairs(void *ctx, int64_t begin, int64_t end)
{
    const row *r = ctx;

    for (int64_t i = begin; i < end; i++) {
        int64_t place = r->order ? pair_place(r->order, i) : i;
        uint64_t both[2] = {
            mr__key_at(r->s->dtype, r->from + place * r->from_step, 0, r->part),
            (uint64_t)place};

        memcpy(r->words + 16 * i, both, sizeof both);
    }
}

static void
decode_pairs(void *ctx, int64_t begin, int64_t end)
{
    const row *r = ctx;

    for (int64_t i = begin; i < end; i++) {
        int64_t place = pair_place(r->words, i);
        char *to = r->to + i * r->to_step;

        if (r->s->argsort)
            memcpy(to, &(uint32_t){(uint32_t)place}, 4);
        else
            memcpy(to, r->from + place * r->from_step, (size_t)r->s->item);
    }
}

static void
pairs_sort(row *r)
{
    char *a = r->words, *b = r->spare;

    r->part = 1;
    row_each(r, encode_pairs);
    r->order = mr__radix_pairs(a, b, r->s->n, 0, 64);
    r->words = r->order == a ? b : a;
    r->spare = r->order == a ? a : b;
    r->part = 0;
    row_each(r, encode_pairs);
    r->words = mr__radix_pairs(r->words, r->spare, r->s->n, 0, 64);
    row_each(r, decode_pairs);
}

/* ---- rows ---------------------------------------------------------------- */

static void
words_sort(row *r)
{
    char *sorted = mr__words_sort(r->words, r->spare, r->s->n, r->s->word);

    if (sorted != r->words) {
        r->spare = r->words;
        r->words = sorted;
    }
}

static void
row_sort(row *r)
{
    const plan *s = r->s;

    switch (s->how) {
    case BY_VALUE:
        /* the result's own memory, where the words fit */
        if (s->word == s->to_item && r->to_step == s->to_item)
            r->words = r->to;
        row_each(r, encode_values);
        words_sort(r);
        row_each(r, decode_values);
        break;
    case BY_PLACE:
        row_each(r, encode_places);
        words_sort(r);
        row_each(r, decode_places);
        break;
    case BY_WIDE_PLACE:
        row_each(r, encode_wide);
        cut_find(r);
        row_each(r, pack_wide);
        words_sort(r);
        if (r->cut > 0)
            runs_settle(r);
        row_each(r, decode_places);
        break;
    case BY_PAIR:
        pairs_sort(r);
        break;
    }
}

static row
row_of(const plan *s, char *slot)
{
    return (row){.s = s,
                 .raw = slot + s->raw,
                 .results = slot + s->results,
                 .keys = slot + s->keys,
                 .words = slot + s->words,
                 .spare = slot + s->spare};
}

static void
single_run(const plan *s, const char *from, char *to, char *slot)
{
    row r = row_of(s, slot);

    r.from = from;
    r.to = to;
    r.from_step = s->from_stride * s->item;
    r.to_step = s->to_stride * s->to_item;
    row_sort(&r);
}

/* `width` rows side by side: rows of the slot, and back. */
static void
turned_run(const plan *s, const char *from, char *to, int64_t width, char *slot)
{
    int64_t n = s->n, item = s->item, to_item = s->to_item;

    s->moves->transpose[size_row(item)](slot + s->raw, n * item, from,
                                        s->from_stride * item, width, n);
    for (int64_t i = 0; i < width; i++) {
        row r = row_of(s, slot);

        r.from = slot + s->raw + i * n * item;
        r.to = slot + s->results + i * n * to_item;
        r.from_step = item;
        r.to_step = to_item;
        row_sort(&r);
    }
    s->moves->transpose[size_row(to_item)](
        to, s->to_stride * to_item, slot + s->results, n * to_item, n, width);
}

/* One element of each of `width` short rows, to words. */
static void
column_encode(const plan *s, const char *from, char *words, char *keys,
              int64_t place, int64_t width)
{
    if (s->how == BY_VALUE) {
        s->tier->keys(words, from, width, s->form, false);
        return;
    }
    s->narrow->keys(keys, from, width, s->form, true);
    s->tier->pack(words, (const int32_t *)(void *)keys, width, s->bits, place,
                  0);
}

static void
column_decode(const plan *s, char *to, const char *words, int64_t width)
{
    if (s->how == BY_VALUE)
        s->tier->values(to, words, width, s->form);
    else
        s->tier->places((uint32_t *)(void *)to, words, width, s->bits);
}

static void
columns_run(const plan *s, const char *from, char *to, int64_t width,
            char *slot)
{
    int64_t n = s->n, item = s->item, to_item = s->to_item;
    int64_t whole = mr__round_up(width, PANEL);
    int64_t from_row = s->from_stride * item, to_row = s->to_stride * to_item;
    char *words = slot + s->words, *dense = to;

    if (s->shape == SHORT) {
        s->moves->transpose[size_row(item)](slot + s->raw, WIDE * item, from,
                                            s->beside[0] * item, n, width);
        from = slot + s->raw;
        from_row = WIDE * item;
        dense = slot + s->results;
        to_row = WIDE * to_item;
    }
    for (int64_t i = 0; i < n; i++) {
        char *line = words + i * whole * s->word;

        memset(line + width * s->word, 0, (size_t)((whole - width) * s->word));
        column_encode(s, from + i * from_row, line, slot + s->keys, i, width);
    }
    s->tier->columns(words, n, whole);
    for (int64_t i = 0; i < n; i++)
        column_decode(s, dense + i * to_row, words + i * whole * s->word,
                      width);
    if (s->shape == SHORT)
        s->moves->transpose[size_row(to_item)](to, s->beside[1] * to_item,
                                               dense, to_row, width, n);
}

/* Rows that lie in a row, of 64-bit keys with places. */
static void
tiny_run(const plan *s, const char *from, char *to, int64_t width, char *slot)
{
    int64_t *keys = (int64_t *)(void *)(slot + s->keys);

    s->tier->keys(keys, from, width * s->n, s->form, true);
    for (int64_t i = 0; i < width; i++)
        places_insert(keys + i * s->n, s->n, (uint32_t *)(void *)to + i * s->n);
}

/* ---- units --------------------------------------------------------------- */

static void
unit_run(const plan *s, int64_t unit, char *slot)
{
    int64_t blocks = (s->n_beside - 1) / s->width + 1;
    int64_t first = unit % blocks * s->width;
    int64_t left = s->n_beside - first;
    const char *from;
    char *to;
    mr_walk w = s->walk;

    mr__walk_seek(&w, unit / blocks);
    from = s->from + (w.offset[0] + first * s->beside[0]) * s->item;
    to = s->to + (w.offset[1] + first * s->beside[1]) * s->to_item;
    left = left < s->width ? left : s->width;
    if (s->shape == SINGLE)
        single_run(s, from, to, slot);
    else if (s->shape == TURNED)
        turned_run(s, from, to, left, slot);
    else if (s->shape == TINY)
        tiny_run(s, from, to, left, slot);
    else
        columns_run(s, from, to, left, slot);
}

static void
slots_piece(void *ctx, int64_t begin, int64_t end)
{
    const plan *s = ctx;

    for (int64_t slot = begin; slot < end; slot++) {
        int64_t last = s->n_units * (slot + 1) / s->n_slots;

        for (int64_t u = s->n_units * slot / s->n_slots; u < last; u++)
            unit_run(s, u, s->workspace + slot * s->slot_bytes);
    }
}

/* ---- the plan ------------------------------------------------------------ */

static int
bits_for(int64_t n)
{
    return n <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)(n - 1));
}

static void
plan_words(plan *s)
{
    bool wide = s->complex || (s->argsort && s->item == 8);

    s->bits = bits_for(s->n);
    s->word = 4;
    /* runs_settle needs a place, and a bit more than one, in a word */
    if (s->dtype == MR_COMPLEX128 || (wide && s->bits > 31)) {
        s->how = BY_PAIR;
        s->word = 16;
    } else if (wide) {
        s->how = BY_WIDE_PLACE;
        s->word = 8;
    } else if (s->argsort) {
        s->how = BY_PLACE;
        s->word = s->item * 8 + s->bits <= 32 ? 4 : 8;
    } else {
        s->how = BY_VALUE;
        s->word = s->item == 8 ? 8 : 4;
    }
    s->tier = mr__sort_of(s->word == 4 ? 4 : 8);
    s->narrow = mr__sort_of(4);
}

/* Which rows are taken together: those along the last dim of the walk. */
static void
plan_shape(plan *s)
{
    int32_t k = s->walk.ndim - 1;
    bool one = s->n >= BIG_ROW || s->how == BY_PAIR || s->complex || k < 0;
    bool adjacent, dense = s->from_stride == 1 && s->to_stride == 1;
    bool wide = s->how == BY_WIDE_PLACE, few = s->n <= MR_SORT_ROWS;

    s->width = s->n_beside = 1;
    if (one || s->walk.dim[k] < 4)
        return;
    adjacent = s->walk.stride[0][k] == 1 && s->walk.stride[1][k] == 1;
    if (adjacent)
        s->shape = few && !wide ? COLUMNS : TURNED;
    else if (dense && few && !wide)
        s->shape = SHORT;
    else if (dense && few && s->walk.stride[0][k] == s->n &&
             s->walk.stride[1][k] == s->n)
        s->shape = TINY;
    else
        return;
    s->width = s->shape == TURNED ? PANEL : WIDE;
    s->n_beside = s->walk.dim[k];
    s->beside[0] = s->walk.stride[0][k];
    s->beside[1] = s->walk.stride[1][k];
    s->walk.ndim--;
}

static int64_t
place_for(plan *s, int64_t bytes)
{
    int64_t at = s->slot_bytes;

    s->slot_bytes += mr__round_up(bytes, 64);
    return at;
}

/* What a slot holds. */
static void
plan_memory(plan *s)
{
    bool columns = s->shape >= COLUMNS;
    int64_t threads = mr__pool_threads(), n = s->n * (columns ? WIDE : 1);
    int64_t side = s->shape == TURNED ? PANEL : 1;
    bool in_place = !columns && s->how == BY_VALUE && s->word == s->to_item &&
                    (s->to_stride == 1 || s->shape == TURNED);

    if (s->shape == SHORT || s->shape == TURNED || s->from_stride != 1)
        s->raw = place_for(s, n * side * s->item);
    if (s->shape == SHORT || s->shape == TURNED || s->to_stride != 1)
        s->results = place_for(s, n * side * s->to_item);
    if (s->how == BY_PLACE)
        s->keys = place_for(s, 4 * n);
    if (s->how == BY_WIDE_PLACE)
        s->keys = place_for(s, 8 * n);
    if (!in_place)
        s->words = place_for(s, n * s->word);
    if (!columns)
        s->spare = place_for(s, n * s->word);
    s->n_slots = threads < MAX_SLOTS ? threads : MAX_SLOTS;
    /* more of them than threads, while they are small: the last one is late */
    if (s->n_slots > 1 && s->slot_bytes < 1 << 19)
        s->n_slots *= 4;
    if (s->n_slots > s->n_units)
        s->n_slots = s->n_units;
    /* Long rows are cut up themselves. */
    if (s->n >= BIG_ROW && s->n_units < 2 * s->n_slots)
        s->n_slots = 1;
}

static void
plan_make(const mr_kernel_args *a, bool argsort, plan *s)
{
    const mr_axis_params *p = a->params;
    const mr_kernel_view *x = &a->in[0];
    uint32_t skip = 1U << p->axis;

    *s = (plan){.dtype = x->dtype,
                .form = mr__key_form(x->dtype),
                .moves = mr__tier()->moves,
                .argsort = argsort,
                .complex = mr__dtype_is_complex(x->dtype),
                .from = x->data,
                .to = a->out[0].data,
                .n = x->dim[p->axis],
                .from_stride = x->stride[p->axis],
                .to_stride = a->out[0].stride[p->axis],
                .item = mr__dtype_size(x->dtype),
                .workspace = a->workspace};
    s->to_item = argsort ? 4 : s->item;
    plan_words(s);
    mr__walk_init(&s->walk, x->ndim, x->dim, skip);
    mr__walk_add(&s->walk, x->ndim, x->stride, skip);
    mr__walk_add(&s->walk, x->ndim, a->out[0].stride, skip);
    mr__walk_merge(&s->walk);
    plan_shape(s);
    s->n_units = mr__walk_size(&s->walk) * ((s->n_beside - 1) / s->width + 1);
    plan_memory(s);
}

static size_t
workspace_of(const mr_kernel_args *a, bool argsort)
{
    plan s;

    if (a->in[0].size == 0)
        return 0;
    plan_make(a, argsort, &s);
    return (size_t)(s.n_slots * s.slot_bytes);
}

size_t
mr__cpu_sort_workspace(const mr_kernel_args *a)
{
    return workspace_of(a, false);
}

size_t
mr__cpu_argsort_workspace(const mr_kernel_args *a)
{
    return workspace_of(a, true);
}

double
mr__cpu_sort_cost(const mr_kernel_args *a)
{
    return 300.0 + 5.0 * (double)a->in[0].size;
}

static mr_code
rows_run(const mr_kernel_args *a, bool argsort)
{
    plan s;

    if (a->in[0].size == 0)
        return MR_OK;
    plan_make(a, argsort, &s);
    if (s.n_slots == 1 || a->in[0].size < 4096) {
        s.n_slots = 1;
        slots_piece(&s, 0, 1);
    } else {
        mr__cpu_for(s.n_slots, 1, slots_piece, &s);
    }
    return MR_OK;
}

mr_code
mr__cpu_sort(const mr_kernel_args *a)
{
    return rows_run(a, false);
}

mr_code
mr__cpu_argsort(const mr_kernel_args *a)
{
    return rows_run(a, true);
}
