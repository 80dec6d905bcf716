/* SPDX-License-Identifier: Apache-2.0
 *
 * among.c -- which elements are among others.
 *
 * The others' keys go into a table of bytes, one for each number between the
 * least and the largest, where these are not far apart, else into a set by
 * hash with linear probing.  Both are filled by many threads at once: what is
 * in a set does not depend on who came first.  NaN is never put in.
 * Called by: device.c.  Calls: keys.h.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cpu/cpu.h"
#include "cpu/keys.h"

enum { BLOCK = 512, SMALL_TABLE = 1 << 16, TABLE_FACTOR = 16 };

typedef struct among {
    const mr_kernel_view *a, *others;
    uint8_t *out;
    uint64_t nan; /* a key that is never there, or 0: none */
    uint64_t low, range;
    _Atomic uint64_t least, largest;
    _Atomic uint8_t *table; /* of range + 1 bytes, or NULL: */
    _Atomic uint64_t *slot; /* EMPTY or a key */
    int shift;
    uint64_t mask;
    _Atomic uint8_t has_empty; /* the key EMPTY is in the set */
} among;

static const uint64_t EMPTY = UINT64_MAX;

static int64_t
block_keys(const mr_kernel_view *x, int64_t block, uint64_t *key)
{
    int64_t from = block * BLOCK, n = x->size - from;

    n = n < BLOCK ? n : BLOCK;
    mr__keys(x->dtype, (const char *)x->data + from * mr__dtype_size(x->dtype),
             1, n, key);
    return n;
}

static void
blocks_run(const mr_kernel_view *x, double ns, mr_cpu_body *fn, among *s)
{
    mr__cpu_for((x->size - 1) / BLOCK + 1, mr__cpu_grain(ns * BLOCK), fn, s);
}

/* ---- filling ------------------------------------------------------------ */

static void
extremes_piece(void *ctx, int64_t begin, int64_t end)
{
    among *s = ctx;
    uint64_t key[BLOCK], least = UINT64_MAX, largest = 0, old;

    for (int64_t b = begin; b < end; b++) {
        int64_t n = block_keys(s->others, b, key);

        for (int64_t i = 0; i < n; i++) {
            least = key[i] < least ? key[i] : least;
            largest = key[i] > largest ? key[i] : largest;
        }
    }
    /* relaxed, all: read after the loop, whose end orders them */
    old = atomic_load_explicit(&s->least, memory_order_relaxed);
    while (least < old && !atomic_compare_exchange_weak_explicit(
                              &s->least, &old, least, memory_order_relaxed,
                              memory_order_relaxed)) {
    }
    old = atomic_load_explicit(&s->largest, memory_order_relaxed);
    while (largest > old && !atomic_compare_exchange_weak_explicit(
                                &s->largest, &old, largest,
                                memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void
table_piece(void *ctx, int64_t begin, int64_t end)
{
    among *s = ctx;
    uint64_t key[BLOCK];

    for (int64_t b = begin; b < end; b++) {
        int64_t n = block_keys(s->others, b, key);

        for (int64_t i = 0; i < n; i++)
            if (s->nan == 0 || key[i] != s->nan)
                /* relaxed: as above */
                atomic_store_explicit(&s->table[key[i] - s->low], 1,
                                      memory_order_relaxed);
    }
}

static uint64_t
slot_first(const among *s, uint64_t key)
{
    return key * 0x9E3779B97F4A7C15ULL >> s->shift;
}

static void
slot_put(among *s, uint64_t key)
{
    uint64_t at = slot_first(s, key);

    for (;; at = (at + 1) & s->mask) {
        /* relaxed, both: a slot leaves EMPTY once, and is its own news */
        uint64_t there =
            atomic_load_explicit(&s->slot[at], memory_order_relaxed);

        if (there == EMPTY && atomic_compare_exchange_strong_explicit(
                                  &s->slot[at], &there, key,
                                  memory_order_relaxed, memory_order_relaxed))
            return;
        if (there == key)
            return;
    }
}

static void
slots_piece(void *ctx, int64_t begin, int64_t end)
{
    among *s = ctx;
    uint64_t key[BLOCK];

    for (int64_t b = begin; b < end; b++) {
        int64_t n = block_keys(s->others, b, key);

        for (int64_t i = 0; i < n; i++)
            if (key[i] == EMPTY)
                /* relaxed: as above */
                atomic_store_explicit(&s->has_empty, 1, memory_order_relaxed);
            else if (s->nan == 0 || key[i] != s->nan)
                slot_put(s, key[i]);
    }
}

/* ---- asking ------------------------------------------------------------- */

static void
ask_table_piece(void *ctx, int64_t begin, int64_t end)
{
    const among *s = ctx;
    uint64_t key[BLOCK];

    for (int64_t b = begin; b < end; b++) {
        int64_t n = block_keys(s->a, b, key);

        for (int64_t i = 0; i < n; i++) {
            uint64_t at = key[i] - s->low;
            bool inside = at <= s->range;

            /* relaxed: nobody writes any more */
            s->out[b * BLOCK + i] =
                atomic_load_explicit(&s->table[inside ? at : 0],
                                     memory_order_relaxed) &
                inside;
        }
    }
}

static bool
slot_has(const among *s, uint64_t key)
{
    /* relaxed, all: nobody writes any more */
    if (key == EMPTY)
        return atomic_load_explicit(&s->has_empty, memory_order_relaxed) &&
               s->nan != EMPTY;
    for (uint64_t at = slot_first(s, key);; at = (at + 1) & s->mask) {
        uint64_t there =
            atomic_load_explicit(&s->slot[at], memory_order_relaxed);

        if (there == key || there == EMPTY)
            return there == key;
    }
}

static void
ask_slots_piece(void *ctx, int64_t begin, int64_t end)
{
    const among *s = ctx;
    uint64_t key[BLOCK];

    for (int64_t b = begin; b < end; b++) {
        int64_t n = block_keys(s->a, b, key);

        for (int64_t i = 0; i < n; i++)
            s->out[b * BLOCK + i] = slot_has(s, key[i]);
    }
}

/* ---- the row of the table ----------------------------------------------- */

static mr_code
by_table(among *s)
{
    size_t bytes = (size_t)s->range + 1;
    void *memory = mr__alloc_zero(bytes);

    if (memory == NULL)
        return MR_E_MEMORY;
    s->table = memory;
    blocks_run(s->others, 1.0, table_piece, s);
    blocks_run(s->a, 1.0, ask_table_piece, s);
    mr__dealloc(memory);
    return MR_OK;
}

static mr_code
by_slots(among *s)
{
    int bits = 4;
    void *memory;

    while ((int64_t)1 << bits < 2 * s->others->size)
        bits++;
    s->shift = 64 - bits;
    s->mask = ((uint64_t)1 << bits) - 1;
    memory = mr__alloc_array((size_t)1 << bits, sizeof *s->slot);
    if (memory == NULL)
        return MR_E_MEMORY;
    s->slot = memory;
    mr__cpu_fill(memory, (int64_t)1 << bits, &EMPTY, sizeof EMPTY);
    blocks_run(s->others, 8.0, slots_piece, s);
    blocks_run(s->a, 8.0, ask_slots_piece, s);
    mr__dealloc(memory);
    return MR_OK;
}

mr_code
mr__cpu_is_among(const mr_kernel_args *a)
{
    const mr_kernel_view *others = &a->in[1];
    mr_dtype t = others->dtype;
    among s = {.a = &a->in[0], .others = others, .out = a->out[0].data};
    uint64_t most = TABLE_FACTOR * (uint64_t)others->size;

    if (mr__dtype_is_inexact(t))
        s.nan = UINT64_MAX >> (64 - mr__key_bits(t));
    atomic_init(&s.least, UINT64_MAX);
    atomic_init(&s.largest, 0);
    atomic_init(&s.has_empty, 0);
    blocks_run(others, 1.0, extremes_piece, &s);
    /* relaxed: the loop is over */
    s.low = atomic_load_explicit(&s.least, memory_order_relaxed);
    s.range = atomic_load_explicit(&s.largest, memory_order_relaxed) - s.low;
    return s.range < (most > SMALL_TABLE ? most : SMALL_TABLE) ? by_table(&s)
                                                               : by_slots(&s);
}
