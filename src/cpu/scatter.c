/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter.c -- writing through index arrays: scatter, put_along_axis.
 *
 * The result is the same for any number of threads: what goes to one place
 * is combined in row-major order of the updates by one thread.  Slices of
 * different offsets do not overlap when every indexed axis has size 1 in
 * them, so points are dealt out by a hash of their offset, and each thread
 * runs through all points for its own.  Many numbers added up in few places
 * are added in parts of a fixed number.  Other scatters run on one thread.
 * Nothing is written before all indices are checked.
 *
 * Halves that are added are added in float32 and rounded once: single elements
 * in a copy of the output as floats, if that is not much larger than they are;
 * else the points of a place are found first, and added up together.  (Slices
 * of more than one entry of an indexed axis may overlap: these are rounded each
 * time.)
 * Called by: device.c.  Calls: index.c, the tier's elementwise kernels.
 */
#include <string.h>

#include "array/layout.h"
#include "base/pool.h"
#include "cpu/index.h"
#include "kernels/gemm.h"
#include "kernels/resolve.h"
#include "kernels/source.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum { CHUNK = 256, NEAR_BYTES = 1024, LINE_BYTES = 64 };

/* How one run of elements is combined into the output. */
typedef struct combine {
    mr_scatter_mode mode;
    mr_map_fn *map; /* NULL: set */
    mr_dtype dtype;
    int64_t item;
    int row; /* of the tables of moves */
} combine;

static int
moves_row(int64_t item)
{
    return item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : item == 8 ? 3 : 4;
}

static combine
combine_of(int64_t mode, mr_dtype t)
{
    static const mr_k k[] = {[MR_SCATTER_ADD] = MR_K_ADD,
                             [MR_SCATTER_MULTIPLY] = MR_K_MULTIPLY,
                             [MR_SCATTER_MAXIMUM] = MR_K_MAXIMUM,
                             [MR_SCATTER_MINIMUM] = MR_K_MINIMUM};
    combine c = {.mode = (mr_scatter_mode)mode,
                 .dtype = t,
                 .item = mr__dtype_size(t),
                 .row = moves_row(mr__dtype_size(t))};

    if (c.mode != MR_SCATTER_SET)
        c.map = mr__tier()->dtype[t]->map[k[mode]];
    return c;
}

/* Sums of one element, by far the most frequent, without a call. */
static bool
add_one(const combine *c, void *to, const void *from)
{
    switch (c->dtype) {
    case MR_FLOAT32:
        *(float *)to += *(const float *)from;
        return true;
    case MR_FLOAT64:
        *(double *)to += *(const double *)from;
        return true;
    case MR_INT32:
    case MR_UINT32:
        *(uint32_t *)to += *(const uint32_t *)from;
        return true;
    case MR_INT64:
    case MR_UINT64:
        *(uint64_t *)to += *(const uint64_t *)from;
        return true;
    case MR_BOOL:
    case MR_UINT8:
    case MR_UINT16:
    case MR_INT8:
    case MR_INT16:
    case MR_FLOAT16:
    case MR_BFLOAT16:
    case MR_COMPLEX64:
    case MR_COMPLEX128:
        break;
    }
    return false;
}

/* n elements, strides in elements. */
static void
combine_run(const combine *c, char *to, int64_t to_stride, const char *from,
            int64_t from_stride, int64_t n)
{
    static const int64_t steps[2] = {1, 1};
    const mr_tier_moves *moves = mr__tier()->moves;
    _Alignas(64) char a[CHUNK * 16], b[CHUNK * 16];

    if (n == 1) {
        if (!c->map) {
            memcpy(to, from, (size_t)c->item);
        } else if (c->mode != MR_SCATTER_ADD || !add_one(c, to, from)) {
            const void *both[2] = {to, from};

            c->map(to, both, steps, 1);
        }
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        char *o = to + i * to_stride * c->item;
        const char *x = from + i * from_stride * c->item;
        const void *both[2] = {o, x};

        m = n - i < CHUNK ? n - i : CHUNK;
        if (from_stride != 1) {
            moves->gather[c->row](b, x, from_stride * c->item, m);
            both[1] = b;
        }
        if (!c->map) {
            moves->scatter[c->row](o, to_stride * c->item, both[1], m);
        } else if (to_stride == 1) {
            c->map(o, both, steps, m);
        } else {
            moves->gather[c->row](a, o, to_stride * c->item, m);
            both[0] = a;
            c->map(a, both, steps, m);
            moves->scatter[c->row](o, to_stride * c->item, a, m);
        }
    }
}

/* ---- scatter
 * ------------------------------------------------------------------- */

typedef struct scatter {
    combine how;
    const int64_t *offset; /* of each point in the output */
    int64_t count, n_owners;
    char *to;
    const char *from;
    mr_walk points; /* of the index shape: the updates' offsets */
    mr_walk slice;  /* without its last dim: output, updates */
    int64_t run, to_stride, from_stride; /* the last dim */
    int64_t n_runs;
    /* halves: the output as floats, or lists of the points of a place */
    float *wide;
    struct lists *lists;
} scatter;

static void
scatter_point(const scatter *s, int64_t to, int64_t from)
{
    int64_t item = s->how.item;
    mr_walk w;

    if (s->n_runs == 1) {
        combine_run(&s->how, s->to + to * item, s->to_stride,
                    s->from + from * item, s->from_stride, s->run);
        return;
    }
    w = s->slice;
    mr__walk_seek(&w, 0);
    for (int64_t r = 0; r < s->n_runs; r++, mr__walk_next(&w))
        combine_run(&s->how, s->to + (to + w.offset[0]) * item, s->to_stride,
                    s->from + (from + w.offset[1]) * item, s->from_stride,
                    s->run);
}

static mr_owner
share_of(const scatter *s, int64_t owner)
{
    uint64_t all = UINT64_C(1) << 32, n = (uint64_t)s->n_owners;
    uint64_t first = (uint64_t)owner * all / n,
             end = ((uint64_t)owner + 1) * all / n;

    return (mr_owner){(uint32_t)first, (uint32_t)(end - first - 1)};
}

/* Points of [i, i + CHUNK) whose places are the owner's: how many. */
static int64_t
chunk_note(const scatter *s, mr_owner owner, int64_t i, int64_t *mine)
{
    int64_t n = s->count - i < CHUNK ? s->count - i : CHUNK;

    return n <= 0 ? 0
                  : mr__resolve_of()->owned(mine, s->offset + i, n, i, owner);
}

/* Some points of one element of the updates, `step` apart, and those that come
 * after them. */
typedef struct elements {
    const int64_t *now, *next;
    int64_t n, n_next, step;
} elements;

/* Places are asked for a chunk before they are met: bursts wait for the lines
 * that may be on their way at once. */
#define ELEMENTS(type, op)                                                     \
    do {                                                                       \
        type *to = (type *)(void *)s->to;                                      \
        const type *from = (const type *)(const void *)s->from;                \
                                                                               \
        for (int64_t k = 0; k < e->n; k++) {                                   \
            if (k < e->n_next)                                                 \
                __builtin_prefetch(&to[s->offset[e->next[k]]], 1);             \
            to[s->offset[e->now[k]]] op from[e->now[k] * e->step];             \
        }                                                                      \
        for (int64_t k = e->n; k < e->n_next; k++)                             \
            __builtin_prefetch(&to[s->offset[e->next[k]]], 1);                 \
    } while (0)

/* Halves to the output as floats. */
static void
elements_widen(const scatter *s, const elements *e)
{
    const uint16_t *from = (const uint16_t *)(const void *)s->from;
    uint16_t halves[CHUNK];
    float x[CHUNK];

    for (int64_t k = 0; k < e->n; k++)
        halves[k] = from[e->now[k] * e->step];
    mr__tier()->casts->cast[s->how.dtype][MR_FLOAT32](x, halves, e->n);
    for (int64_t k = 0; k < e->n; k++) {
        if (k < e->n_next)
            __builtin_prefetch(&s->wide[s->offset[e->next[k]]], 1);
        s->wide[s->offset[e->now[k]]] += x[k];
    }
    for (int64_t k = e->n; k < e->n_next; k++)
        __builtin_prefetch(&s->wide[s->offset[e->next[k]]], 1);
}

/* False: none of the cases that stand here. */
static bool
elements_run(const scatter *s, const elements *e)
{
    bool add = s->how.mode == MR_SCATTER_ADD;
    mr_dtype t = s->how.dtype;

    if (s->wide)
        elements_widen(s, e);
    else if (add && t == MR_FLOAT32)
        ELEMENTS(float, +=);
    else if (add && t == MR_FLOAT64)
        ELEMENTS(double, +=);
    else if (add && (t == MR_INT32 || t == MR_UINT32))
        ELEMENTS(uint32_t, +=);
    else if (add && (t == MR_INT64 || t == MR_UINT64))
        ELEMENTS(uint64_t, +=);
    else if (s->how.mode == MR_SCATTER_SET && s->how.item == 4)
        ELEMENTS(uint32_t, =);
    else if (s->how.mode == MR_SCATTER_SET && s->how.item == 8)
        ELEMENTS(uint64_t, =);
    else
        return false;
    return true;
}

/* Everything of this owner, where updates are single elements; false: none of
 * the cases of elements_run. */
static bool
owner_elements(const scatter *s, mr_owner owner)
{
    int64_t mine[2][CHUNK];
    elements e = {.step = s->points.ndim == 0 ? 0 : s->points.stride[0][0]};
    int w = 0;

    e.n_next = chunk_note(s, owner, 0, mine[0]);
    for (int64_t i = 0; i < s->count; i += CHUNK, w ^= 1) {
        e.now = mine[w];
        e.n = e.n_next;
        e.next = mine[w ^ 1];
        e.n_next = chunk_note(s, owner, i + CHUNK, mine[w ^ 1]);
        if (!elements_run(s, &e))
            return false;
    }
    return true;
}

/* Runs of the output and of the updates are brought near, up to NEAR_BYTES. */
static void
run_near(const char *to, const char *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes && i < NEAR_BYTES; i += LINE_BYTES) {
        __builtin_prefetch(from + i);
        __builtin_prefetch(to + i, 1);
    }
}

/* The same where updates are runs, each met while the next comes near. */
static void
owner_runs(const scatter *s, mr_owner owner)
{
    int64_t item = s->how.item, mine[CHUNK], n;
    int64_t step = s->points.ndim == 0 ? 0 : s->points.stride[0][0] * item;
    bool dense = s->to_stride == 1 && s->from_stride == 1;
    int64_t bytes = dense ? s->run * item : 0;

    for (int64_t i = 0; i < s->count; i += CHUNK) {
        n = chunk_note(s, owner, i, mine);
        for (int64_t k = 0; k < n; k++) {
            if (k + 1 < n)
                run_near(s->to + s->offset[mine[k + 1]] * item,
                         s->from + mine[k + 1] * step, bytes);
            combine_run(&s->how, s->to + s->offset[mine[k]] * item,
                        s->to_stride, s->from + mine[k] * step, s->from_stride,
                        s->run);
        }
    }
}

/* n adjacent halves to as many floats. */
static void
widen_add(const combine *c, float *to, const void *halves, int64_t n)
{
    static const float one = 1.0F;
    mr_gemm_kind kind =
        c->dtype == MR_FLOAT16 ? MR_GEMM_FLOAT16 : MR_GEMM_BFLOAT16;

    /* a product of one row and depth 1 */
    mr__gemm_in_use()->wide[kind](to, 0, &one, 0, 1, halves, 0, 1, n, false);
}

/* Runs of halves to the output as floats. */
static void
owner_wide_runs(const scatter *s, mr_owner owner)
{
    int64_t step = s->points.ndim == 0 ? 0 : s->points.stride[0][0];
    const uint16_t *from = (const uint16_t *)(const void *)s->from;
    int64_t mine[CHUNK], n;

    for (int64_t i = 0; i < s->count; i += CHUNK) {
        n = chunk_note(s, owner, i, mine);
        for (int64_t k = 0; k < n; k++) {
            if (k + 1 < n)
                run_near((char *)(s->wide + s->offset[mine[k + 1]]),
                         (const char *)(from + mine[k + 1] * step), s->run * 2);
            widen_add(&s->how, s->wide + s->offset[mine[k]],
                      from + mine[k] * step, s->run);
        }
    }
}

/* ---- halves that are added, place by place
 * ----------------------------------- Each owner goes through its points and
 * links those of one place, in their order; then the places, in the order of
 * their first points.
 */
typedef struct node {
    int32_t next; /* point of the same place, or -1 */
    /* of a place's first point: */
    int32_t last;  /* the last one so far */
    int32_t chain; /* the next place with the same head */
    int32_t later; /* the place that was met next */
} node;

typedef struct lists {
    node *node;     /* of each point */
    int32_t *heads; /* of each owner, 2^bits */
    int bits;
} lists;

static int
lists_bits(int64_t count, int64_t n_owners)
{
    int bits = 0;

    while (INT64_C(1) << bits < count / n_owners)
        bits++;
    return bits;
}

static size_t
lists_bytes(int64_t count, int64_t n_owners)
{
    int64_t heads = n_owners << lists_bits(count, n_owners);

    return (size_t)count * sizeof(node) + (size_t)heads * sizeof(int32_t);
}

static lists
lists_place(void *room, int64_t count, int64_t n_owners)
{
    node *nodes = room;

    return (lists){.node = nodes,
                   .heads = (int32_t *)(void *)(nodes + count),
                   .bits = lists_bits(count, n_owners)};
}

static int32_t *
lists_head(const scatter *s, int32_t *heads, int64_t p)
{
    uint64_t hash = (uint64_t)s->offset[p] * UINT64_C(0xD6E8FEB86659FD93);

    return heads + (s->lists->bits > 0 ? hash >> (64 - s->lists->bits) : 0);
}

/* Point p, under its head; is it the first one of its place? */
static bool
lists_take(const scatter *s, int32_t *head, int32_t p)
{
    node *all = s->lists->node;
    int32_t r = *head;

    while (r >= 0 && s->offset[r] != s->offset[p])
        r = all[r].chain;
    if (r < 0) {
        all[p] = (node){.next = -1, .last = p, .chain = *head, .later = -1};
        *head = p;
        return true;
    }
    all[p].next = -1;
    all[all[r].last].next = p;
    all[r].last = p;
    return false;
}

/* Some points of an owner; `last` is the place that was met last, or -1.  What
 * they touch is asked for first. */
static int32_t
lists_extend(const scatter *s, int32_t *heads, const int64_t *mine, int64_t n,
             int32_t last, int32_t *first)
{
    node *all = s->lists->node;
    int32_t *head[CHUNK];

    for (int64_t k = 0; k < n; k++) {
        head[k] = lists_head(s, heads, mine[k]);
        __builtin_prefetch(head[k], 1);
    }
    for (int64_t k = 0; k < n; k++)
        if (*head[k] >= 0) {
            __builtin_prefetch(all + *head[k], 1);
            __builtin_prefetch(s->offset + *head[k]);
        }
    for (int64_t k = 0; k < n; k++) {
        int32_t p = (int32_t)mine[k];

        if (!lists_take(s, head[k], p))
            continue;
        *(last < 0 ? first : &all[last].later) = p;
        last = p;
    }
    return last;
}

/* An owner's places: the first one, or -1. */
static int32_t
lists_make(const scatter *s, mr_owner owner, int64_t number)
{
    int64_t mine[CHUNK], n, size = INT64_C(1) << s->lists->bits;
    int32_t *heads = s->lists->heads + number * size, first = -1, last = -1;

    memset(heads, -1, (size_t)size * sizeof *heads);
    for (int64_t i = 0; i < s->count; i += CHUNK) {
        n = chunk_note(s, owner, i, mine);
        last = lists_extend(s, heads, mine, n, last, &first);
    }
    return first;
}

/* Where the updates of a point are. */
static int64_t
point_from(const scatter *s, int64_t p)
{
    mr_walk w;

    if (s->points.ndim <= 1)
        return s->points.ndim == 0 ? 0 : p * s->points.stride[0][0];
    w = s->points;
    mr__walk_seek(&w, p);
    return w.offset[0];
}

/* n halves, strides in elements, += those of all points of a place; `from` is
 * what lies beyond a point's first update. */
static void
halves_add(const scatter *s, int32_t first, uint16_t *to, int64_t from,
           int64_t n)
{
    const mr_tier *tier = mr__tier();
    mr_dtype t = s->how.dtype;
    uint16_t halves[CHUNK];
    float sum[CHUNK];

    if (s->to_stride != 1)
        tier->moves->gather[1](halves, to, s->to_stride * 2, n);
    tier->casts->cast[t][MR_FLOAT32](sum, s->to_stride == 1 ? to : halves, n);
    for (int32_t p = first; p >= 0; p = s->lists->node[p].next) {
        const uint16_t *part =
            (const uint16_t *)(const void *)s->from + point_from(s, p) + from;

        if (s->from_stride != 1) {
            tier->moves->gather[1](halves, part, s->from_stride * 2, n);
            part = halves;
        }
        widen_add(&s->how, sum, part, n);
    }
    tier->casts->cast[MR_FLOAT32][t](s->to_stride == 1 ? to : halves, sum, n);
    if (s->to_stride != 1)
        tier->moves->scatter[1](to, s->to_stride * 2, halves, n);
}

/* A run of a place's slice: so far from its first numbers. */
static void
place_run(const scatter *s, int32_t first, int64_t to, int64_t from)
{
    uint16_t *at = (uint16_t *)(void *)s->to + s->offset[first] + to;

    for (int64_t i = 0, n; i < s->run; i += n) {
        n = s->run - i < CHUNK ? s->run - i : CHUNK;
        halves_add(s, first, at + i * s->to_stride, from + i * s->from_stride,
                   n);
    }
}

/* All of a place. */
static void
place_add(const scatter *s, int32_t first)
{
    if (s->lists->node[first].next < 0) { /* one addition, one rounding */
        scatter_point(s, s->offset[first], point_from(s, first));
    } else if (s->n_runs == 1) {
        place_run(s, first, 0, 0);
    } else {
        mr_walk w = s->slice;

        mr__walk_seek(&w, 0);
        for (int64_t r = 0; r < s->n_runs; r++, mr__walk_next(&w))
            place_run(s, first, w.offset[0], w.offset[1]);
    }
}

/* The second points of n places of single elements and those that follow, to
 * their sums. */
static void
elements_follow(const scatter *s, const int32_t *first, int64_t n, float *sum)
{
    const node *all = s->lists->node;
    const uint16_t *from = (const uint16_t *)(const void *)s->from;

    for (int64_t k = 0; k < n; k++)
        for (int32_t p = all[first[k]].next; p >= 0; p = all[p].next)
            widen_add(&s->how, sum + k, from + point_from(s, p), 1);
}

/* n places of single elements. */
static void
elements_add(const scatter *s, const int32_t *first, int64_t n)
{
    const mr_tier *tier = mr__tier();
    mr_dtype t = s->how.dtype;
    uint16_t *to = (uint16_t *)(void *)s->to, halves[CHUNK], more[CHUNK];
    float sum[CHUNK];

    for (int64_t k = 0; k < n; k++) {
        const char *from = s->from + point_from(s, first[k]) * 2;

        halves[k] = to[s->offset[first[k]]];
        memcpy(&more[k], from, sizeof more[k]);
    }
    tier->casts->cast[t][MR_FLOAT32](sum, halves, n);
    widen_add(&s->how, sum, more, n);
    elements_follow(s, first, n, sum);
    tier->casts->cast[MR_FLOAT32][t](halves, sum, n);
    for (int64_t k = 0; k < n; k++)
        to[s->offset[first[k]]] = halves[k];
}

static void
owner_lists(const scatter *s, mr_owner owner, int64_t number)
{
    const node *all = s->lists->node;
    int64_t bytes = s->to_stride == 1 && s->from_stride == 1 ? s->run * 2 : 0;
    int32_t p = lists_make(s, owner, number), some[CHUNK];
    bool single = s->n_runs == 1 && s->run == 1;

    for (int64_t n = 0; single && p >= 0; n = 0) {
        for (; n < CHUNK && p >= 0; p = all[p].later) {
            __builtin_prefetch(s->to + s->offset[p] * 2, 1);
            some[n++] = p;
        }
        elements_add(s, some, n);
    }
    for (int32_t soon; p >= 0; p = soon) {
        soon = all[p].later;
        if (soon >= 0)
            run_near(s->to + s->offset[soon] * 2,
                     s->from + point_from(s, soon) * 2, bytes);
        place_add(s, p);
    }
}

/* Everything at places that this owner has. */
static void
scatter_owner(const scatter *s, int64_t owner)
{
    mr_owner its = share_of(s, owner);
    bool runs = s->n_runs == 1 && s->points.ndim <= 1;
    mr_walk w = s->points;

    if (s->lists) {
        owner_lists(s, its, owner);
        return;
    }
    if (s->wide && s->run > 1) {
        owner_wide_runs(s, its);
        return;
    }
    if (runs && s->run == 1 && owner_elements(s, its))
        return;
    if (runs) {
        owner_runs(s, its);
        return;
    }
    mr__walk_seek(&w, 0);
    for (int64_t i = 0; i < s->count; i++, mr__walk_next(&w))
        if (mr__is_owned(its, s->offset[i]))
            scatter_point(s, s->offset[i], w.offset[0]);
}

static void
scatter_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t owner = begin; owner < end; owner++)
        scatter_owner(ctx, owner);
}

/* ---- many numbers into few places ----------------------------------------
 * The points are cut into PARTS runs, each with sums of its own for all places;
 * these are added to the output part by part.  The cut does not depend on
 * threads, and the sums lie in the workspace, where offsets would be.
 */
enum { PARTS = 8 };

typedef struct sums {
    const mr_index_axis *axis;
    mr_walk index, from;
    mr_dtype dtype;
    const char *updates;
    char *part;
    int64_t n, size; /* points, places */
    _Atomic int64_t bad;
} sums;

#define SUMS(type)                                                             \
    do {                                                                       \
        const type *x = (const type *)(const void *)s->updates;                \
        type *sum = (type *)(void *)s->part + part * s->size;                  \
                                                                               \
        for (int64_t k = 0; k < n; k++)                                        \
            sum[at[k] * stride] += x[(i + k) * step];                          \
    } while (0)

/* Halves to sums of float32. */
static void
sums_widen(const sums *s, float *sum, int64_t i, int64_t n, const int64_t *at)
{
    int64_t step = s->from.ndim == 0 ? 0 : s->from.stride[0][0];
    uint16_t halves[CHUNK];
    float x[CHUNK];

    mr__tier()->moves->gather[1](halves, s->updates + i * step * 2, step * 2,
                                 n);
    mr__tier()->casts->cast[s->dtype][MR_FLOAT32](x, halves, n);
    for (int64_t k = 0; k < n; k++)
        sum[at[k] * s->axis->stride] += x[k];
}

static void
sums_add(const sums *s, int64_t part, int64_t i, int64_t n, const int64_t *at)
{
    int64_t step = s->from.ndim == 0 ? 0 : s->from.stride[0][0];
    int64_t stride = s->axis->stride;

    if (mr__dtype_is_half(s->dtype))
        sums_widen(s, (float *)(void *)s->part + part * s->size, i, n, at);
    else if (s->dtype == MR_FLOAT32)
        SUMS(float);
    else if (s->dtype == MR_FLOAT64)
        SUMS(double);
    else if (mr__dtype_size(s->dtype) == 4)
        SUMS(uint32_t);
    else
        SUMS(uint64_t);
}

/* What a sum starts from: -0 where the dtype has it, since x + -0 is x. */
static void
sums_clear(const sums *s, int64_t part)
{
    const float narrow = -0.0F;
    const double wide = -0.0;
    const uint64_t zero = 0;
    mr_dtype t = mr__accumulate_dtype(s->dtype);
    int64_t item = mr__dtype_size(t);
    const void *value = t == MR_FLOAT32   ? (const void *)&narrow
                        : t == MR_FLOAT64 ? (const void *)&wide
                                          : (const void *)&zero;

    for (int64_t i = 0; i < s->size; i++)
        memcpy(s->part + (part * s->size + i) * item, value, (size_t)item);
}

static void
sums_piece(void *ctx, int64_t begin, int64_t end)
{
    sums *s = ctx;
    const mr_index_axis *x = s->axis;
    int64_t step = s->index.ndim == 0 ? 0 : s->index.stride[0][0];

    for (int64_t part = begin; part < end; part++) {
        int64_t stop = s->n * (part + 1) / PARTS, at[CHUNK];

        sums_clear(s, part);
        for (int64_t i = s->n * part / PARTS, n; i < stop; i += n) {
            int64_t good;

            n = stop - i < CHUNK ? stop - i : CHUNK;
            good =
                mr__index_run(x->index, i * step, step, n, x->n, x->n - 1, at);
            if (good < n) {
                mr__index_note(&s->bad, i + good);
                break;
            }
            sums_add(s, part, i, n, at);
        }
    }
}

static bool
has_sums(mr_dtype t)
{
    return mr__dtype_is_half(t) || t == MR_FLOAT32 || t == MR_FLOAT64 ||
           t == MR_INT32 || t == MR_UINT32 || t == MR_INT64 || t == MR_UINT64;
}

static bool
sums_plan(sums *s, const mr_kernel_args *a, const mr_index_axis *axis)
{
    const mr_scatter_params *p = a->params;
    const mr_kernel_view *out = &a->out[0], *updates = &a->in[a->n_in - 1];
    const mr_kernel_view *index = axis->index;
    int32_t n_index = updates->ndim - out->ndim;

    if (p->mode != MR_SCATTER_ADD || p->axes.n != 1 || !has_sums(out->dtype) ||
        updates->size != index->size || index->size < 1 << 15 ||
        out->size > index->size / (4 * PARTS) ||
        !mr__is_contiguous(out->ndim, out->dim, out->stride))
        return false;
    *s = (sums){.axis = axis,
                .dtype = out->dtype,
                .updates = updates->data,
                .part = a->workspace,
                .n = index->size,
                .size = out->size};
    atomic_init(&s->bad, INT64_MAX);
    mr__walk_init(&s->index, index->ndim, index->dim, 0);
    mr__walk_add(&s->index, index->ndim, index->stride, 0);
    mr__walk_merge(&s->index);
    mr__walk_init(&s->from, n_index, updates->dim, 0);
    mr__walk_add(&s->from, n_index, updates->stride, 0);
    mr__walk_merge(&s->from);
    return s->index.ndim <= 1 && s->from.ndim <= 1;
}

static mr_code
sums_run(sums *s, const mr_kernel_args *a)
{
    static const int64_t steps[2] = {1, 1};
    mr_dtype t = mr__accumulate_dtype(s->dtype);
    mr_map_fn *add = mr__tier()->dtype[t]->map[MR_K_ADD];
    const mr_tier_casts *casts = mr__tier()->casts;
    int64_t bytes = s->size * mr__dtype_size(t);
    char *to = a->out[0].data;
    int64_t bad, step = s->index.ndim == 0 ? 0 : s->index.stride[0][0];

    mr__cpu_for(PARTS, 1, sums_piece, s);
    bad = atomic_load_explicit(&s->bad, memory_order_relaxed);
    if (bad != INT64_MAX)
        return mr__index_fail(mr__index_read(s->axis->index, bad * step),
                              s->axis->axis, s->axis->n);
    mr__cpu_copy_view(to, &a->in[0]);
    if (t != s->dtype) { /* behind the parts */
        to = s->part + PARTS * bytes;
        casts->cast[s->dtype][t](to, a->out[0].data, s->size);
    }
    for (int64_t part = 0; part < PARTS; part++) {
        const void *both[2] = {to, s->part + part * bytes};

        add(to, both, steps, s->size);
    }
    if (t != s->dtype)
        casts->cast[t][s->dtype](a->out[0].data, to, s->size);
    return MR_OK;
}

/* ---- halves that are added, in float32 ------------------------------------
 */

/* Numbers of the output for each of the updates: with more, a copy of it as
 * floats takes longer than lists (single elements; runs in halves of that). */
enum { WIDE_MOST = 8, WIDE_RUNS = 2 };

static int64_t
points_of(const mr_kernel_args *a)
{
    return a->n_in > 2 ? a->in[1].size : 1;
}

static int64_t
owners_of(const mr_kernel_args *a)
{
    return a->in[a->n_in - 1].size >= 1 << 15 ? mr__pool_threads() : 1;
}

/* Do slices of different places not overlap? */
static bool
slices_apart(const mr_kernel_args *a)
{
    const mr_scatter_params *p = a->params;
    const mr_kernel_view *updates = &a->in[a->n_in - 1];
    int32_t n_index = updates->ndim - a->out[0].ndim;

    for (int64_t k = 0; k < p->axes.n; k++)
        if (updates->dim[n_index + (int32_t)p->axes.v[k]] != 1)
            return false;
    return true;
}

typedef enum way { WAY_PLAIN, WAY_WIDE, WAY_LISTS } way;

static way
way_of(const mr_kernel_args *a)
{
    const mr_scatter_params *p = a->params;
    const mr_kernel_view *out = &a->out[0];
    int64_t count = points_of(a), updates = a->in[a->n_in - 1].size;

    if (p->mode != MR_SCATTER_ADD || !mr__dtype_is_half(out->dtype) ||
        updates == 0 || count > INT32_MAX || !slices_apart(a))
        return WAY_PLAIN;
    if (updates == count)
        return out->size / WIDE_MOST <= count ? WAY_WIDE : WAY_LISTS;
    return out->size <= updates / WIDE_RUNS ? WAY_WIDE : WAY_LISTS;
}

size_t
mr__cpu_scatter_workspace(const mr_kernel_args *a)
{
    size_t bytes = (size_t)points_of(a) * sizeof(int64_t);
    size_t wide = (size_t)a->out[0].size * sizeof(float), linked;
    way how = way_of(a);

    if (how == WAY_PLAIN)
        return bytes;
    linked = lists_bytes(points_of(a), owners_of(a));
    return bytes + (how == WAY_WIDE && wide > linked ? wide : linked);
}

typedef struct turn {
    mr_dtype t;
    char *halves;
    float *wide;
} turn;

static void
widen_piece(void *ctx, int64_t begin, int64_t end)
{
    const turn *x = ctx;

    mr__tier()->casts->cast[x->t][MR_FLOAT32](
        x->wide + begin, x->halves + begin * 2, end - begin);
}

static void
narrow_piece(void *ctx, int64_t begin, int64_t end)
{
    const turn *x = ctx;

    mr__tier()->casts->cast[MR_FLOAT32][x->t](x->halves + begin * 2,
                                              x->wide + begin, end - begin);
}

/* The points go to their places; the output has what was there. */
static void
scatter_run(scatter *s, const mr_kernel_args *a)
{
    int64_t grain = mr__cpu_grain(0.2), size = a->out[0].size;
    void *room = (int64_t *)a->workspace + s->count;
    turn x = {s->how.dtype, s->to, room};
    const mr_kernel_view *out = &a->out[0];
    bool dense = mr__is_contiguous(out->ndim, out->dim, out->stride) &&
                 s->points.ndim <= 1 && s->n_runs == 1 &&
                 (s->run == 1 || (s->to_stride == 1 && s->from_stride == 1));
    way how = way_of(a);
    lists l;

    if (how == WAY_WIDE && dense) {
        s->wide = room;
        mr__cpu_for(size, grain, widen_piece, &x);
    } else if (how != WAY_PLAIN && size > 0) {
        l = lists_place(room, s->count, s->n_owners);
        s->lists = &l;
    }
    mr__cpu_for(s->n_owners, 1, scatter_piece, s);
    if (s->wide)
        mr__cpu_for(size, grain, narrow_piece, &x);
}

/* The slice's last dim as a run, the rest as a walk. */
static void
slice_plan(scatter *s, const mr_kernel_view *out, const mr_kernel_view *updates,
           int32_t n_index)
{
    mr_walk *w = &s->slice;

    mr__walk_init(w, out->ndim, updates->dim + n_index, 0);
    mr__walk_add(w, out->ndim, out->stride, 0);
    mr__walk_add(w, out->ndim, updates->stride + n_index, 0);
    mr__walk_merge(w);
    s->run = s->to_stride = s->from_stride = 1;
    if (w->ndim > 0) {
        w->ndim--;
        s->run = w->dim[w->ndim];
        s->to_stride = w->stride[0][w->ndim];
        s->from_stride = w->stride[1][w->ndim];
    }
    s->n_runs = mr__walk_size(w);
}

mr_code
mr__cpu_scatter(const mr_kernel_args *a)
{
    const mr_scatter_params *p = a->params;
    const mr_kernel_view *out = &a->out[0], *updates = &a->in[a->n_in - 1];
    int32_t n_index = updates->ndim - out->ndim;
    mr_index_axis axes[MR_MAX_NDIM];
    scatter s = {.how = combine_of(p->mode, out->dtype),
                 .offset = a->workspace,
                 .count = points_of(a),
                 .n_owners = 1,
                 .to = out->data,
                 .from = updates->data};
    mr_code code;
    sums few;

    for (int64_t k = 0; k < p->axes.n; k++) {
        int32_t axis = (int32_t)p->axes.v[k];
        int64_t size = updates->dim[n_index + axis];

        axes[k] = (mr_index_axis){&a->in[1 + k], axis, out->dim[axis], size,
                                  out->stride[axis]};
    }
    if (sums_plan(&few, a, axes))
        return sums_run(&few, a);
    code = mr__index_offsets(axes, (int)p->axes.n, s.count, a->workspace);
    if (code != MR_OK)
        return code;
    mr__cpu_copy_view(out->data, &a->in[0]);
    if (updates->size == 0)
        return MR_OK;
    mr__walk_init(&s.points, n_index, updates->dim, 0);
    mr__walk_add(&s.points, n_index, updates->stride, 0);
    mr__walk_merge(&s.points);
    slice_plan(&s, out, updates, n_index);
    if (slices_apart(a))
        s.n_owners = owners_of(a);
    scatter_run(&s, a);
    return MR_OK;
}

/* ---- put_along_axis
 * -------------------------------------------------------------- */

typedef struct put {
    combine how;
    const mr_kernel_view *out, *index, *values;
    mr_walk rows; /* without the axis: output, index, values */
    int32_t axis;
    bool check; /* the first pass: look for bad indices, write nothing */
    _Atomic int64_t bad;
} put;

/* n values to places of their own. */
static void
put_run(const put *t, char *to, const char *from, const int64_t *at, int64_t n)
{
    int64_t item = t->how.item, step = t->values->stride[t->axis];
    int64_t stride = t->out->stride[t->axis];

    if (t->how.mode == MR_SCATTER_ADD && t->how.dtype == MR_FLOAT32)
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[at[i] * stride] +=
                ((const float *)(const void *)from)[i * step];
    else if (t->how.mode == MR_SCATTER_SET && item == 4)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)to)[at[i] * stride] =
                ((const uint32_t *)(const void *)from)[i * step];
    else
        for (int64_t i = 0; i < n; i++)
            combine_run(&t->how, to + at[i] * stride * item, 1,
                        from + i * step * item, 1, 1);
}

static void
put_piece(void *ctx, int64_t begin, int64_t end)
{
    put *t = ctx;
    int64_t count = t->index->dim[t->axis], size = t->out->dim[t->axis];
    int64_t item = t->how.item, step = t->index->stride[t->axis], at[CHUNK];
    mr_walk w = t->rows;

    mr__walk_seek(&w, begin);
    for (int64_t r = begin; r < end; r++, mr__walk_next(&w))
        for (int64_t j = 0, n; j < count; j += n) {
            int64_t from = w.offset[2] + j * t->values->stride[t->axis], good;

            n = count - j < CHUNK ? count - j : CHUNK;
            good = mr__index_run(t->index, w.offset[1] + j * step, step, n,
                                 size, size - 1, at);
            if (good < n)
                mr__index_note(&t->bad, r * count + j + good);
            else if (!t->check)
                put_run(t, (char *)t->out->data + w.offset[0] * item,
                        (const char *)t->values->data + from * item, at, n);
        }
}

mr_code
mr__cpu_put_along_axis(const mr_kernel_args *a)
{
    const mr_put_params *p = a->params;
    const mr_kernel_view *out = &a->out[0], *index = &a->in[1];
    uint32_t skip = 1U << p->axis;
    int64_t count = index->dim[p->axis], n_rows, bad, grain;
    put t = {.how = combine_of(p->mode, out->dtype),
             .out = out,
             .index = index,
             .values = &a->in[2],
             .axis = p->axis,
             .check = true};

    if (index->size == 0) {
        mr__cpu_copy_view(out->data, &a->in[0]);
        return MR_OK;
    }
    mr__walk_init(&t.rows, out->ndim, index->dim, skip);
    mr__walk_add(&t.rows, out->ndim, out->stride, skip);
    mr__walk_add(&t.rows, out->ndim, index->stride, skip);
    mr__walk_add(&t.rows, out->ndim, a->in[2].stride, skip);
    mr__walk_merge(&t.rows);
    n_rows = index->size / count;
    atomic_init(&t.bad, INT64_MAX);
    grain = mr__cpu_grain(5.0 * (double)count);
    mr__cpu_for(n_rows, grain, put_piece, &t);
    bad = atomic_load_explicit(&t.bad, memory_order_relaxed);
    if (bad != INT64_MAX) {
        mr__walk_seek(&t.rows, bad / count);
        return mr__index_fail(
            mr__index_read(index, t.rows.offset[1] +
                                      bad % count * index->stride[p->axis]),
            p->axis, out->dim[p->axis]);
    }
    mr__cpu_copy_view(out->data, &a->in[0]);
    t.check = false;
    mr__cpu_for(n_rows, grain, put_piece, &t);
    return MR_OK;
}
