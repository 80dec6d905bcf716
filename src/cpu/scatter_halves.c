/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter_halves.c -- scatters that add halves: in float32, rounded once.
 *
 * In a copy of the output as floats, if that is not much larger than the
 * updates are; else the points of a place are found first, and added up
 * together.  Order and owners are those of scatter.c.
 * Called by: scatter.c, put.c.  Calls: the tier's casts and moves.
 */
#include <string.h>

#include "array/layout.h"
#include "base/pool.h"
#include "cpu/scatter.h"
#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

/* n adjacent halves to as many floats. */
static void
widen_add(const mr_combine *c, float *to, const void *halves, int64_t n)
{
    static const float one = 1.0F;
    mr_gemm_kind kind =
        c->dtype == MR_FLOAT16 ? MR_GEMM_FLOAT16 : MR_GEMM_BFLOAT16;

    /* a product of one row and depth 1 */
    mr__gemm_in_use()->wide[kind](to, 0, &one, 0, 1, halves, 0, 1, n, false);
}

/* Halves to the output as floats. */
void
mr__scatter_widen(const mr_scatter *s, const mr_scatter_elements *e)
{
    const uint16_t *from = (const uint16_t *)(const void *)s->from;
    uint16_t halves[MR_SCATTER_CHUNK];
    float x[MR_SCATTER_CHUNK];

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

/* Runs of halves to the output as floats. */
static void
wide_runs(const mr_scatter *s, mr_owner owner)
{
    int64_t step = s->points.ndim == 0 ? 0 : s->points.stride[0][0];
    const uint16_t *from = (const uint16_t *)(const void *)s->from;
    int64_t mine[MR_SCATTER_CHUNK], n;

    for (int64_t i = 0; i < s->count; i += MR_SCATTER_CHUNK) {
        n = mr__scatter_note(s, owner, i, mine);
        for (int64_t k = 0; k < n; k++) {
            if (k + 1 < n)
                mr__scatter_near((char *)(s->wide + s->offset[mine[k + 1]]),
                                 (const char *)(from + mine[k + 1] * step),
                                 s->run * 2);
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

typedef struct mr_scatter_lists {
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
lists_head(const mr_scatter *s, int32_t *heads, int64_t p)
{
    uint64_t hash = (uint64_t)s->offset[p] * UINT64_C(0xD6E8FEB86659FD93);

    return heads + (s->lists->bits > 0 ? hash >> (64 - s->lists->bits) : 0);
}

/* Point p, under its head; is it the first one of its place? */
static bool
lists_take(const mr_scatter *s, int32_t *head, int32_t p)
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
lists_extend(const mr_scatter *s, int32_t *heads, const int64_t *mine,
             int64_t n, int32_t last, int32_t *first)
{
    node *all = s->lists->node;
    int32_t *head[MR_SCATTER_CHUNK];

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
lists_make(const mr_scatter *s, mr_owner owner, int64_t number)
{
    int64_t mine[MR_SCATTER_CHUNK], n, size = INT64_C(1) << s->lists->bits;
    int32_t *heads = s->lists->heads + number * size, first = -1, last = -1;

    memset(heads, -1, (size_t)size * sizeof *heads);
    for (int64_t i = 0; i < s->count; i += MR_SCATTER_CHUNK) {
        n = mr__scatter_note(s, owner, i, mine);
        last = lists_extend(s, heads, mine, n, last, &first);
    }
    return first;
}

/* Where the updates of a point are. */
static int64_t
point_from(const mr_scatter *s, int64_t p)
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
halves_add(const mr_scatter *s, int32_t first, uint16_t *to, int64_t from,
           int64_t n)
{
    const mr_tier *tier = mr__tier();
    mr_dtype t = s->how.dtype;
    uint16_t halves[MR_SCATTER_CHUNK];
    float sum[MR_SCATTER_CHUNK];

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
place_run(const mr_scatter *s, int32_t first, int64_t to, int64_t from)
{
    uint16_t *at = (uint16_t *)(void *)s->to + s->offset[first] + to;

    for (int64_t i = 0, n; i < s->run; i += n) {
        n = s->run - i < MR_SCATTER_CHUNK ? s->run - i : MR_SCATTER_CHUNK;
        halves_add(s, first, at + i * s->to_stride, from + i * s->from_stride,
                   n);
    }
}

/* All of a place. */
static void
place_add(const mr_scatter *s, int32_t first)
{
    if (s->lists->node[first].next < 0) { /* one addition, one rounding */
        mr__scatter_point(s, s->offset[first], point_from(s, first));
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
elements_follow(const mr_scatter *s, const int32_t *first, int64_t n,
                float *sum)
{
    const node *all = s->lists->node;
    const uint16_t *from = (const uint16_t *)(const void *)s->from;

    for (int64_t k = 0; k < n; k++)
        for (int32_t p = all[first[k]].next; p >= 0; p = all[p].next)
            widen_add(&s->how, sum + k, from + point_from(s, p), 1);
}

/* n places of single elements. */
static void
elements_add(const mr_scatter *s, const int32_t *first, int64_t n)
{
    const mr_tier *tier = mr__tier();
    mr_dtype t = s->how.dtype;
    uint16_t *to = (uint16_t *)(void *)s->to, halves[MR_SCATTER_CHUNK],
             more[MR_SCATTER_CHUNK];
    float sum[MR_SCATTER_CHUNK];

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
owner_lists(const mr_scatter *s, mr_owner owner, int64_t number)
{
    const node *all = s->lists->node;
    int64_t bytes = s->to_stride == 1 && s->from_stride == 1 ? s->run * 2 : 0;
    int32_t p = lists_make(s, owner, number), some[MR_SCATTER_CHUNK];
    bool single = s->n_runs == 1 && s->run == 1;

    for (int64_t n = 0; single && p >= 0; n = 0) {
        for (; n < MR_SCATTER_CHUNK && p >= 0; p = all[p].later) {
            __builtin_prefetch(s->to + s->offset[p] * 2, 1);
            some[n++] = p;
        }
        elements_add(s, some, n);
    }
    for (int32_t soon; p >= 0; p = soon) {
        soon = all[p].later;
        if (soon >= 0)
            mr__scatter_near(s->to + s->offset[soon] * 2,
                             s->from + point_from(s, soon) * 2, bytes);
        place_add(s, p);
    }
}

void
mr__scatter_halves(const mr_scatter *s, mr_owner its, int64_t owner)
{
    if (s->lists)
        owner_lists(s, its, owner);
    else
        wide_runs(s, its);
}

/* ---- which way
 * ------------------------------------------------------------------ */

/* Numbers of the output for each of the updates: with more, a copy of it as
 * floats takes longer than lists (single elements; runs in halves of that). */
enum { WIDE_MOST = 8, WIDE_RUNS = 2 };

mr_scatter_way
mr__scatter_way(mr_scatter_mode mode, const mr_kernel_view *out, int64_t count,
                int64_t updates)
{
    bool wide = updates == count ? out->size / WIDE_MOST <= count
                                 : out->size <= updates / WIDE_RUNS;

    if (mode != MR_SCATTER_ADD || !mr__dtype_is_half(out->dtype) ||
        updates == 0 || count > INT32_MAX)
        return MR_SCATTER_PLAIN;
    return wide ? MR_SCATTER_WIDE : MR_SCATTER_LISTS;
}

size_t
mr__scatter_room(mr_scatter_way way, const mr_kernel_view *out, int64_t count,
                 int64_t n_owners)
{
    size_t wide = (size_t)out->size * sizeof(float), linked;

    if (way == MR_SCATTER_PLAIN)
        return 0;
    linked = lists_bytes(count, n_owners);
    return way == MR_SCATTER_WIDE && wide > linked ? wide : linked;
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

void
mr__scatter_run(mr_scatter *s, const mr_kernel_view *out, mr_scatter_way way,
                void *room)
{
    int64_t grain = mr__cpu_grain(0.2), size = out->size;
    turn x = {s->how.dtype, s->to, room};
    bool dense = mr__is_contiguous(out->ndim, out->dim, out->stride) &&
                 s->points.ndim <= 1 && s->n_runs == 1 &&
                 (s->run == 1 || (s->to_stride == 1 && s->from_stride == 1));
    lists l;

    if (way == MR_SCATTER_WIDE && dense) {
        s->wide = room;
        mr__cpu_for(size, grain, widen_piece, &x);
    } else if (way != MR_SCATTER_PLAIN && size > 0) {
        l = lists_place(room, s->count, s->n_owners);
        s->lists = &l;
    }
    mr__scatter_points(s);
    if (s->wide)
        mr__cpu_for(size, grain, narrow_piece, &x);
}
