/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.c -- products on the matrix unit: which rows can go in pieces, and
 * what happens to those that cannot.
 *
 * Packing notes what each panel of a and each item's b hold.  When all is done
 * the rows of panels that do not fit b are looked at one by one, and those that
 * do not fit themselves are made again as floats, by the same route.  So an
 * element's bits depend on its row of a and on b alone.
 *
 * Called by: matmul.c, strips.c, packed.c.  Calls: strips.c, packed.c.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/integers.h"
#include "cpu/product.h"
#include "kernels/tier/tier.h"

enum {
    LANES = MR_GEMM_PIECES_LANES,
    ROWS = MR_STRIP_ROWS /* that are brought together */
};

#define LOOK_NS 1.0 /* at a number */

/* ---- ranges ----------------------------------------------------------------
 */

void
mr__ranges_begin(mr_ranges *r)
{
    atomic_init(&r->least, MR_GEMM_RANGE_NONE.least);
    atomic_init(&r->most, MR_GEMM_RANGE_NONE.most);
}

void
mr__ranges_take(mr_ranges *r, mr_gemm_range x)
{
    int old = atomic_load_explicit(&r->least, memory_order_relaxed);

    while (x.least < old && !atomic_compare_exchange_weak_explicit(
                                &r->least, &old, x.least, memory_order_relaxed,
                                memory_order_relaxed))
        ;
    old = atomic_load_explicit(&r->most, memory_order_relaxed);
    while (x.most > old && !atomic_compare_exchange_weak_explicit(
                               &r->most, &old, x.most, memory_order_relaxed,
                               memory_order_relaxed))
        ;
}

mr_gemm_range
mr__ranges_read(mr_ranges *r)
{
    return (mr_gemm_range){
        .least = atomic_load_explicit(&r->least, memory_order_relaxed),
        .most = atomic_load_explicit(&r->most, memory_order_relaxed)};
}

mr_ranges *
mr__seen_a(const mr_seen *s, int64_t item, int64_t panel)
{
    return s->a + (s->a_shared ? 0 : item) * s->panels + panel;
}

mr_ranges *
mr__seen_b(const mr_seen *s, int64_t item)
{
    return s->b + (s->b_shared ? 0 : item);
}

static bool
panel_fits(const mr_seen *s, int64_t item, int64_t panel)
{
    return mr__gemm_ranges_fit(s->p->dtype,
                               mr__ranges_read(mr__seen_a(s, item, panel)),
                               mr__ranges_read(mr__seen_b(s, item)));
}

/* The largest and the least one of numbers as bits without their sign, twice
 * those of float32, less 1: so 0 is no least one. */
typedef struct extremes {
    uint32_t most, least;
} extremes;

static inline void
extremes_take(extremes *x, uint32_t bits)
{
    bits += bits;
    x->most = bits > x->most ? bits : x->most;
    x->least = bits - 1 < x->least ? bits - 1 : x->least;
}

/* Of k numbers `step` bytes apart. */
static extremes
words_look(const char *from, int64_t step, int64_t k)
{
    extremes x = {0, UINT32_MAX};
    uint32_t bits;

    for (; k > 0; k--, from += step) {
        memcpy(&bits, from, sizeof bits);
        extremes_take(&x, bits);
    }
    return x;
}

static extremes
halves_look(const char *from, int64_t step, int64_t k)
{
    extremes x = {0, UINT32_MAX};
    uint16_t half;

    for (; k > 0; k--, from += step) {
        memcpy(&half, from, sizeof half);
        extremes_take(&x, (uint32_t)half << 16);
    }
    return x;
}

/* Finite or not is all that counts of float16. */
static mr_gemm_range
float16_range(extremes x)
{
    bool finite = x.most < UINT32_C(0x7C00) << 17;

    return (mr_gemm_range){.least = 0, .most = finite ? 0 : 128};
}

mr_gemm_range
mr__row_range(const mr_gemm_side *a, int64_t row, int64_t k)
{
    enum { BIAS = 127, SHIFT = 24 };
    int64_t size = mr__dtype_size(a->dtype), step = a->depth_stride * size;
    const char *from = (const char *)a->data + row * a->lane_stride * size;
    extremes x =
        size == 4 ? words_look(from, step, k) : halves_look(from, step, k);

    if (x.most == 0)
        return MR_GEMM_RANGE_NONE;
    if (a->dtype == MR_FLOAT16)
        return float16_range(x);
    return (mr_gemm_range){.least = (int)((x.least + 1) >> SHIFT) - BIAS,
                           .most = (int)(x.most >> SHIFT) - BIAS};
}

/* Not even with its largest number alone, or beside zeros. */
static bool
range_hopeless(const mr_seen *s, int64_t item, int64_t panel)
{
    mr_gemm_range a = mr__ranges_read(mr__seen_a(s, item, panel));
    mr_gemm_range b = mr__ranges_read(mr__seen_b(s, item));
    mr_gemm_range most = {.least = a.most, .most = MR_GEMM_RANGE_NONE.most};

    return !mr__gemm_ranges_fit(s->p->dtype, MR_GEMM_RANGE_NONE, b) ||
           (a.most > MR_GEMM_RANGE_NONE.most &&
            !mr__gemm_ranges_fit(s->p->dtype, most, b));
}

/* None of its rows beside what b is known to hold: so beside all of it. */
static bool
rows_hopeless(const mr_seen *s, int64_t item, int64_t panel)
{
    const mr_product *p = s->p;
    int64_t i = panel * LANES, end = i + LANES < p->m ? i + LANES : p->m;
    mr_gemm_range b_range = mr__ranges_read(mr__seen_b(s, item));
    mr_gemm_side a, b;
    void *c;

    mr__product_item(p, item, &a, &b, &c);
    while (i < end &&
           !mr__gemm_ranges_fit(p->dtype, mr__row_range(&a, i, p->k), b_range))
        i++;
    return i == end;
}

bool
mr__seen_hopeless(const mr_seen *s, int64_t item, int64_t panel)
{
    enum { SOME = 1, NONE };
    _Atomic uint8_t *at = s->verdict + item * s->panels + panel;
    uint8_t verdict;

    if (panel_fits(s, item, panel))
        return false;
    if (range_hopeless(s, item, panel))
        return true;
    verdict = atomic_load_explicit(at, memory_order_relaxed);
    if (verdict == 0) {
        verdict = rows_hopeless(s, item, panel) ? NONE : SOME;
        atomic_store_explicit(at, verdict, memory_order_relaxed);
    }
    return verdict == NONE;
}

bool
mr__seen_fit(const mr_seen *s)
{
    for (int64_t item = 0; item < s->p->n_items; item++)
        for (int64_t panel = 0; panel < s->panels; panel++)
            if (!panel_fits(s, item, panel))
                return false;
    return true;
}

/* Without room for ranges. */
static mr_seen
seen_plan(const mr_product *p)
{
    return (mr_seen){.p = p,
                     .panels = (p->m - 1) / LANES + 1,
                     .a_shared = mr__product_side_shared(&p->batch, 0),
                     .b_shared = mr__product_side_shared(&p->batch, 1)};
}

static int64_t
n_a(const mr_seen *s)
{
    return (s->a_shared ? 1 : s->p->n_items) * s->panels;
}

static int64_t
n_b(const mr_seen *s)
{
    return s->b_shared ? 1 : s->p->n_items;
}

/* ---- rows that cannot ------------------------------------------------------
 */

/* Which rows of an item are to be made again. */
typedef struct search {
    const mr_seen *s;
    int64_t item;
    bool *bad; /* of each row */
} search;

static void
search_piece(void *ctx, int64_t begin, int64_t end)
{
    search *x = ctx;
    const mr_product *p = x->s->p;
    mr_gemm_range b_range = mr__ranges_read(mr__seen_b(x->s, x->item));
    mr_gemm_side a, b;
    void *c;

    mr__product_item(p, x->item, &a, &b, &c);
    for (int64_t panel = begin; panel < end; panel++) {
        bool fine = panel_fits(x->s, x->item, panel);
        bool hopeless = !fine && mr__seen_hopeless(x->s, x->item, panel);

        for (int64_t i = panel * LANES; i < p->m && i < (panel + 1) * LANES;
             i++)
            x->bad[i] =
                !fine && (hopeless ||
                          !mr__gemm_ranges_fit(
                              p->dtype, mr__row_range(&a, i, p->k), b_range));
    }
}

/* How many there are. */
static int64_t
rows_search(const mr_seen *s, int64_t item, bool *bad)
{
    search x = {s, item, bad};
    int64_t n = 0;

    mr__cpu_for(s->panels, mr__cpu_grain(LOOK_NS * (double)(LANES * s->p->k)),
                search_piece, &x);
    for (int64_t i = 0; i < s->p->m; i++)
        n += bad[i];
    return n;
}

static bool
item_fits(const mr_seen *s, int64_t item)
{
    for (int64_t panel = 0; panel < s->panels; panel++)
        if (!panel_fits(s, item, panel))
            return false;
    return true;
}

/* ---- the product -----------------------------------------------------------
 */

/* n rows of one item, brought together. */
static mr_product
rows_product(const mr_product *p, int64_t n)
{
    mr_product t = *p;

    t.form = MR_GEMM_FLOATS;
    t.seen = NULL;
    t.after = NULL;
    t.picked = NULL;
    t.batch.ndim = 0;
    t.n_items = 1;
    t.m = t.a.lanes = n;
    t.a.lane_stride = p->k;
    t.a.depth_stride = 1;
    t.c_row = p->n;
    return t;
}

/* All of it, or the items that are picked, as floats. */
static mr_product
floats_product(const mr_product *p)
{
    mr_product t = *p;

    t.form = MR_GEMM_FLOATS;
    t.seen = NULL;
    t.after = NULL;
    return t;
}

static size_t
route_bytes(const mr_product *p, bool strips)
{
    return mr__whole_lines(strips ? mr__product_strips_bytes(p)
                                  : mr__product_packed_bytes(p));
}

static void
route_run(const mr_product *p, bool strips, void *workspace)
{
    if (strips)
        (void)mr__product_strips(p, workspace);
    else
        (void)mr__product_packed(p, workspace);
}

/* Ranges, verdicts, numbers of picked items, which rows of an item are bad;
 * then what the product in any form needs, and in its place, when all is packed
 * no more, rows and their results before what they need. */
typedef struct room {
    size_t ranges, verdicts, picked, bad, rows, results, all;
} room;

static room
room_plan(const mr_product *p, bool strips)
{
    mr_seen s = seen_plan(p);
    mr_product floats = floats_product(p), few, one;
    size_t size = (size_t)mr__dtype_size(p->dtype), most;
    int64_t rows = p->m < ROWS ? p->m : ROWS;
    room r;

    few = rows_product(p, rows);
    one = floats;
    one.n_items = 1;
    r.ranges = mr__whole_lines((size_t)(n_a(&s) + n_b(&s)) * sizeof(mr_ranges));
    r.verdicts = mr__whole_lines((size_t)(p->n_items * s.panels));
    r.picked = mr__whole_lines((size_t)p->n_items * sizeof(int64_t));
    r.bad = mr__whole_lines((size_t)p->m * sizeof(bool));
    r.rows = mr__whole_lines((size_t)(rows * p->k) * size);
    r.results = mr__whole_lines((size_t)(rows * p->n) * size);
    most = mr__max_bytes(route_bytes(p, strips), route_bytes(&floats, strips));
    most = mr__max_bytes(most, route_bytes(&one, strips));
    most = mr__max_bytes(most, r.rows + r.results + route_bytes(&few, strips));
    r.all = r.ranges + r.verdicts + r.picked + r.bad + most;
    return r;
}

size_t
mr__product_pieces_bytes(const mr_product *p, bool strips)
{
    return room_plan(p, strips).all;
}

/* Rows of a to `to`, one after the other. */
static void
rows_gather(const mr_gemm_side *a, const int64_t *row, int64_t n, int64_t k,
            char *to)
{
    int64_t size = mr__dtype_size(a->dtype);

    for (int64_t i = 0; i < n; i++, to += k * size)
        mr__tier()->moves->gather[size / 2](
            to, (const char *)a->data + row[i] * a->lane_stride * size,
            a->depth_stride * size, k);
}

/* Rows of one item made again. */
static void
rows_redo(const mr_product *p, bool strips, int64_t item, const int64_t *row,
          int64_t n, char *room_rows, char *room_results, void *workspace)
{
    size_t size = (size_t)mr__dtype_size(p->dtype);
    mr_product t = rows_product(p, n);
    mr_gemm_side a;
    void *c;

    mr__product_item(p, item, &a, &t.b, &c);
    rows_gather(&a, row, n, p->k, room_rows);
    t.a.data = room_rows;
    t.c = room_results;
    route_run(&t, strips, workspace);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)c + (size_t)(row[i] * p->c_row) * size,
               room_results + (size_t)(i * p->n) * size, (size_t)p->n * size);
}

/* Where things are while rows are made again. */
typedef struct redo {
    const mr_seen *s;
    bool strips;
    int64_t *picked;
    bool *bad;
    void *workspace;
    char *rows, *results; /* there too */
    void *rows_workspace;
} redo;

/* The bad rows of one item. */
static void
item_redo(const redo *x, int64_t item)
{
    int64_t row[ROWS], n = 0;

    for (int64_t i = 0; i < x->s->p->m; i++) {
        if (x->bad[i])
            row[n++] = i;
        if (n == ROWS || (n > 0 && i + 1 == x->s->p->m)) {
            rows_redo(x->s->p, x->strips, item, row, n, x->rows, x->results,
                      x->rows_workspace);
            n = 0;
        }
    }
}

/* Items of which no row is kept are made again together. */
static void
all_redo(const redo *x)
{
    mr_product t = floats_product(x->s->p);
    int64_t n = 0;

    for (int64_t item = 0; item < x->s->p->n_items; item++) {
        if (item_fits(x->s, item))
            continue;
        if (rows_search(x->s, item, x->bad) == x->s->p->m)
            x->picked[n++] = item;
        else
            item_redo(x, item);
    }
    if (n == 0)
        return;
    t.n_items = n;
    t.picked = x->picked;
    route_run(&t, x->strips, x->workspace);
}

void
mr__product_pieces(const mr_product *p, bool strips, void *workspace)
{
    room r = room_plan(p, strips);
    mr_product t = *p;
    mr_seen s = seen_plan(p);
    char *free = workspace;
    redo x = {.s = &s, .strips = strips};

    s.a = (mr_ranges *)(void *)free;
    s.b = s.a + n_a(&s);
    s.verdict = (_Atomic uint8_t *)(void *)(free += r.ranges);
    x.picked = (int64_t *)(void *)(free += r.verdicts);
    x.bad = (bool *)(free += r.picked);
    x.workspace = free += r.bad;
    x.rows = free;
    x.results = x.rows + r.rows;
    x.rows_workspace = x.results + r.results;
    for (int64_t i = 0; i < n_a(&s) + n_b(&s); i++)
        mr__ranges_begin(&s.a[i]);
    for (int64_t i = 0; i < p->n_items * s.panels; i++)
        atomic_init(&s.verdict[i], 0);
    t.seen = &s;
    route_run(&t, strips, x.workspace);
    if (!mr__seen_fit(&s))
        all_redo(&x);
    if (p->after != NULL && !s.followed)
        mr__product_after_all(p);
}
