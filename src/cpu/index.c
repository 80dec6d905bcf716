/* SPDX-License-Identifier: Apache-2.0
 *
 * index.c -- reading through index arrays: gather, take_along_axis.
 *
 * All indices are resolved and checked in a pass of their own, before any
 * element is touched; what goes wrong is named by its first place.
 * Called by: device.c; scatter.c uses the checking.
 */
#include "cpu/index.h"

#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "kernels/copy.h"
#include "kernels/resolve.h"
#include "kernels/source.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum {
    RUN = 512,
    NEAR = 64,      /* elements that are on their way from memory */
    CUT = 16 * RUN, /* of a row of take_along_axis: rows may be few */
    FORESEEN = 256, /* bytes of the next slice */
};

/* ---- index arrays
 * ------------------------------------------------------------ */

int64_t
mr__index_read(const mr_kernel_view *x, int64_t offset)
{
    const char *p = x->data;

    return mr__index_at(x->dtype, p + offset * mr__dtype_size(x->dtype));
}

/* Those `step` apart, one by one (kernels/resolve.h has adjacent ones). */
#define INDEX_RUN(type, resolve)                                               \
    do {                                                                       \
        const type *p = (const type *)x->data + offset;                        \
                                                                               \
        if (step == 1) {                                                       \
            bad = t->resolve(at, p, n, size, last);                            \
            break;                                                             \
        }                                                                      \
        for (int64_t i = 0; i < n; i++) {                                      \
            int64_t k = (int64_t)p[i * step];                                  \
                                                                               \
            k += k >> 63 & size;                                               \
            bad |= k | (last - k);                                             \
            at[i] = k;                                                         \
        }                                                                      \
    } while (0)

int64_t
mr__index_run(const mr_kernel_view *x, int64_t offset, int64_t step, int64_t n,
              int64_t size, int64_t last, int64_t *at)
{
    const mr_resolve_tier *t = mr__resolve_of();
    int64_t bad = last;

    switch (x->dtype) {
    case MR_INT32:
        INDEX_RUN(int32_t, i32);
        break;
    case MR_UINT32:
        INDEX_RUN(uint32_t, u32);
        break;
    case MR_INT64:
        INDEX_RUN(int64_t, i64);
        break;
    case MR_BOOL:
    case MR_UINT8:
    case MR_UINT16:
    case MR_UINT64:
    case MR_INT8:
    case MR_INT16:
    case MR_FLOAT16:
    case MR_BFLOAT16:
    case MR_FLOAT32:
    case MR_FLOAT64:
    case MR_COMPLEX64:
    case MR_COMPLEX128:
        for (int64_t i = 0; i < n; i++) {
            int64_t k = mr__index_read(x, offset + i * step);

            k += k < 0 ? size : 0;
            bad |= k < 0 || k > last ? -1 : 0;
            at[i] = k;
        }
        break;
    }
    for (int64_t i = 0; bad < 0 && i < n; i++)
        if (at[i] < 0 || at[i] > last)
            return i;
    return n;
}

void
mr__index_note(_Atomic int64_t *place, int64_t at)
{
    /* relaxed: read after the loop, whose end orders it */
    int64_t old = atomic_load_explicit(place, memory_order_relaxed);

    while (at < old &&
           !atomic_compare_exchange_weak_explicit(
               place, &old, at, memory_order_relaxed, memory_order_relaxed)) {
    }
}

typedef struct resolve {
    const mr_index_axis *axis;
    int64_t *offset;
    bool first; /* set, not add */
    mr_walk walk;
    _Atomic int64_t bad;
} resolve;

/* Entries begin ... of an index array whose axes are one run. */
static void
resolve_run(resolve *r, int64_t begin, int64_t end)
{
    const mr_index_axis *x = r->axis;
    int64_t step = r->walk.ndim == 0 ? 0 : r->walk.stride[0][0];
    bool as_they_are = r->first && x->stride == 1;
    int64_t apart[RUN];

    for (int64_t i = begin, n; i < end; i += n) {
        int64_t good, *at = as_they_are ? r->offset + i : apart;

        n = end - i < RUN ? end - i : RUN;
        good = mr__index_run(x->index, i * step, step, n, x->n, x->n - x->size,
                             at);
        if (good < n) {
            mr__index_note(&r->bad, i + good);
            memset(at, 0, (size_t)n * sizeof *at);
        }
        for (int64_t k = 0; !as_they_are && k < n; k++)
            r->offset[i + k] =
                (r->first ? 0 : r->offset[i + k]) + at[k] * x->stride;
    }
}

static void
resolve_piece(void *ctx, int64_t begin, int64_t end)
{
    resolve *r = ctx;
    const mr_index_axis *x = r->axis;
    mr_walk w = r->walk;

    if (w.ndim <= 1) {
        resolve_run(r, begin, end);
        return;
    }
    mr__walk_seek(&w, begin);
    for (int64_t i = begin; i < end; i++, mr__walk_next(&w)) {
        int64_t k = mr__index_read(x->index, w.offset[0]);
        int64_t at = k < 0 ? k + x->n : k;

        if (at < 0 || at > x->n - x->size) {
            mr__index_note(&r->bad, i);
            at = 0;
        }
        r->offset[i] = (r->first ? 0 : r->offset[i]) + at * x->stride;
    }
}

mr_code
mr__index_offsets(const mr_index_axis *axes, int n_axes, int64_t count,
                  int64_t *offset)
{
    if (n_axes == 0)
        memset(offset, 0, (size_t)count * sizeof *offset);
    for (int i = 0; i < n_axes; i++) {
        const mr_kernel_view *x = axes[i].index;
        resolve r = {.axis = &axes[i], .offset = offset, .first = i == 0};
        int64_t bad;

        atomic_init(&r.bad, INT64_MAX);
        mr__walk_init(&r.walk, x->ndim, x->dim, 0);
        mr__walk_add(&r.walk, x->ndim, x->stride, 0);
        mr__walk_merge(&r.walk);
        mr__cpu_for(count, mr__cpu_grain(3.0), resolve_piece, &r);
        bad = atomic_load_explicit(&r.bad, memory_order_relaxed);
        if (bad != INT64_MAX) {
            mr__walk_seek(&r.walk, bad);
            return mr__index_fail(mr__index_read(x, r.walk.offset[0]),
                                  axes[i].axis, axes[i].n);
        }
    }
    return MR_OK;
}

/* ---- gather
 * ------------------------------------------------------------------- */

typedef struct gather {
    const int64_t *offset; /* in elements of x, a point each */
    const char *from;
    char *to;
    size_t item;
    int64_t slice; /* elements of a slice */
    int ndim;      /* of a slice, merged; strides in bytes */
    int64_t dim[MR_MAX_NDIM], from_stride[MR_MAX_NDIM], to_stride[MR_MAX_NDIM];
} gather;

/* Elements [0, n) of this run; those of the next run, whose offsets are
 * `next`, are brought near meanwhile. */
#define GATHER_ITEMS(type)                                                     \
    for (int64_t i = 0; i < n; i++) {                                          \
        __builtin_prefetch(from + next[i] * (int64_t)sizeof(type));            \
        memcpy(to + i * (int64_t)sizeof(type),                                 \
               from + at[i] * (int64_t)sizeof(type), sizeof(type));            \
    }

static void
gather_items(size_t item, char *to, const char *from, const int64_t *at,
             const int64_t *next, int64_t n)
{
    switch (item) {
    case 1:
        GATHER_ITEMS(uint8_t);
        break;
    case 2:
        GATHER_ITEMS(uint16_t);
        break;
    case 4:
        GATHER_ITEMS(uint32_t);
        break;
    case 8:
        GATHER_ITEMS(uint64_t);
        break;
    default:
        GATHER_ITEMS(mr_c128);
        break;
    }
}

/* Slices of one element. */
static void
gather_points(void *ctx, int64_t begin, int64_t end)
{
    const gather *g = ctx;

    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t *at = g->offset + i;

        n = end - i < NEAR ? end - i : NEAR;
        gather_items(g->item, g->to + i * (int64_t)g->item, g->from, at,
                     end - i >= 2 * NEAR ? at + NEAR : at, n);
    }
}

/* The same straight from an index array that is one run: indices and elements
 * in one pass.  The indices of a run are resolved before the elements of the
 * run before it are read, so that these are asked for NEAR elements ahead: a
 * burst of more requests than a processor keeps track of makes it wait.  Only
 * the fresh output is written to when an index turns out bad. */
typedef struct gather_run {
    gather g;
    const mr_index_axis *axis;
    int64_t step;
    _Atomic int64_t bad;
} gather_run;

/* Offsets of indices i ... (NEAR at most, before end); how many, or -1. */
static int64_t
gather_resolve(gather_run *r, int64_t i, int64_t end, int64_t *at)
{
    const mr_index_axis *x = r->axis;
    int64_t n = end - i < NEAR ? end - i : NEAR, good;

    good = mr__index_run(x->index, i * r->step, r->step, n, x->n, x->n - 1, at);
    if (good < n) {
        mr__index_note(&r->bad, i + good);
        return -1;
    }
    if (x->stride != 1)
        for (int64_t k = 0; k < n; k++)
            at[k] *= x->stride;
    return n;
}

static void
gather_direct(void *ctx, int64_t begin, int64_t end)
{
    gather_run *r = ctx;
    int64_t item = (int64_t)r->g.item, at[2][NEAR];
    int64_t n = gather_resolve(r, begin, end, at[0]);

    for (int64_t i = begin, ahead, w = 0; n > 0; i += n, n = ahead, w ^= 1) {
        ahead = gather_resolve(r, i + n, end, at[w ^ 1]);
        gather_items(r->g.item, r->g.to + i * item, r->g.from, at[w],
                     ahead == n ? at[w ^ 1] : at[w], n);
    }
}

/* false: not of this kind; else *code is what came of it. */
static bool
gather_at_once(const gather *g, const mr_index_axis *axes, int n_axes,
               int64_t count, mr_code *code)
{
    gather_run r = {.g = *g, .axis = axes};
    mr_walk w;
    int64_t bad;

    if (n_axes != 1 || g->slice != 1 || axes[0].size != 1)
        return false;
    mr__walk_init(&w, axes[0].index->ndim, axes[0].index->dim, 0);
    mr__walk_add(&w, axes[0].index->ndim, axes[0].index->stride, 0);
    mr__walk_merge(&w);
    if (w.ndim > 1)
        return false;
    r.step = w.ndim == 0 ? 0 : w.stride[0][0];
    atomic_init(&r.bad, INT64_MAX);
    mr__cpu_for(count, mr__cpu_grain(4.0), gather_direct, &r);
    bad = atomic_load_explicit(&r.bad, memory_order_relaxed);
    *code = MR_OK;
    if (bad != INT64_MAX) {
        mr__walk_seek(&w, bad);
        *code = mr__index_fail(mr__index_read(axes[0].index, w.offset[0]),
                               axes[0].axis, axes[0].n);
    }
    return true;
}

/* The lines at the beginning of a slice: what follows, the processor foresees
 * (16384 slices of 1 KB from 16 MB, a C loop on two threads: 640 us without,
 * 530 so; asking for whole slices gains no more, and costs where they are
 * near). */
static void
slice_foresee(const char *from, int64_t bytes)
{
    for (int64_t b = 0; b < bytes && b < FORESEEN; b += 64)
        __builtin_prefetch(from + b);
}

/* Slices that are one piece of memory.  They are stored through the caches:
 * past them 16 MB take 305 us on two threads whatever the last cache holds,
 * through them 500 when it holds nothing of the result, 210 when it still has
 * the one before, whose memory this is. */
static void
gather_runs(void *ctx, int64_t begin, int64_t end)
{
    const gather *g = ctx;
    int64_t item = (int64_t)g->item, bytes = g->slice * item;
    void (*move)(void *, const void *, int64_t, int64_t) =
        mr__tier()->moves->gather[0];

    for (int64_t i = begin; i < end; i++) {
        if (i + 1 < end)
            slice_foresee(g->from + g->offset[i + 1] * item, bytes);
        move(g->to + i * bytes, g->from + g->offset[i] * item, 1, bytes);
    }
}

static void
gather_slices(void *ctx, int64_t begin, int64_t end)
{
    const gather *g = ctx;
    int64_t item = (int64_t)g->item, bytes = g->slice * item;

    for (int64_t i = begin; i < end; i++)
        mr__copy_strided(g->item, g->ndim, g->dim, g->to + i * bytes,
                         g->to_stride, g->from + g->offset[i] * item,
                         g->from_stride);
}

size_t
mr__cpu_gather_workspace(const mr_kernel_args *a)
{
    return (a->n_in > 1 ? (size_t)a->in[1].size : 1) * sizeof(int64_t);
}

mr_code
mr__cpu_gather(const mr_kernel_args *a)
{
    const mr_gather_params *p = a->params;
    const mr_kernel_view *x = &a->in[0];
    int64_t count = a->n_in > 1 ? a->in[1].size : 1;
    mr_index_axis axes[MR_MAX_NDIM];
    gather g = {.offset = a->workspace,
                .from = x->data,
                .to = a->out[0].data,
                .item = (size_t)mr__dtype_size(x->dtype),
                .slice = 1};
    mr_over over = {.n = 0};
    mr_walk w;
    mr_code code;
    double ns;

    for (int64_t k = 0; k < p->axes.n; k++) {
        int32_t axis = (int32_t)p->axes.v[k];

        axes[k] = (mr_index_axis){&a->in[1 + k], axis, x->dim[axis],
                                  p->sizes.v[axis], x->stride[axis]};
    }
    mr__walk_init(&w, x->ndim, p->sizes.v, 0);
    mr__walk_add(&w, x->ndim, x->stride, 0);
    mr__walk_merge(&w);
    g.ndim = w.ndim;
    g.slice = mr__walk_size(&w);
    mr__strides_fresh(w.ndim, w.dim, g.to_stride);
    for (int k = 0; k < w.ndim; k++) {
        g.dim[k] = w.dim[k];
        g.from_stride[k] = w.stride[0][k] * (int64_t)g.item;
        g.to_stride[k] *= (int64_t)g.item;
    }
    if (a->out[0].size > 0 &&
        gather_at_once(&g, axes, (int)p->axes.n, count, &code))
        return code;
    code = mr__index_offsets(axes, (int)p->axes.n, count, a->workspace);
    if (code != MR_OK || a->out[0].size == 0)
        return code;
    ns = 4.0 + 0.1 * (double)g.slice * (double)g.item;
    mr__over_add(&over, g.to);
    mr__cpu_for_over(&over, count, mr__cpu_grain(ns),
                     g.slice == 1 ? gather_points
                     : g.ndim == 1 && g.from_stride[0] == (int64_t)g.item
                         ? gather_runs
                         : gather_slices,
                     &g);
    return MR_OK;
}

/* ---- take_along_axis
 * ------------------------------------------------------------ */

typedef struct along {
    const mr_kernel_view *x, *index, *out;
    mr_walk rows; /* of the output without its last axis: x, index */
    int32_t axis;
    int64_t n, x_step, index_step, axis_stride; /* of the inner loop */
    int64_t n_cuts;                             /* of a row */
    _Atomic int64_t bad;
} along;

#define ALONG_RUN(type)                                                        \
    if (step == 0 && stride == 1)                                              \
        for (int64_t i = 0; i < n; i++)                                        \
            memcpy(to + i * (int64_t)sizeof(type),                             \
                   x + at[i] * (int64_t)sizeof(type), sizeof(type));           \
    else                                                                       \
        for (int64_t i = 0; i < n; i++)                                        \
        memcpy(to + i * (int64_t)sizeof(type),                                 \
               x + (i * step + at[i] * stride) * (int64_t)sizeof(type),        \
               sizeof(type))

/* n elements at places of their own along the axis. */
static void
along_run(const along *t, char *to, const char *x, const int64_t *at, int64_t n)
{
    int64_t step = t->x_step, stride = t->axis_stride;

    switch (mr__dtype_size(t->x->dtype)) {
    case 1:
        ALONG_RUN(uint8_t);
        break;
    case 2:
        ALONG_RUN(uint16_t);
        break;
    case 4:
        ALONG_RUN(uint32_t);
        break;
    case 8:
        ALONG_RUN(uint64_t);
        break;
    default:
        ALONG_RUN(mr_c128);
        break;
    }
}

/* Entries [first, last) of row r of the output. */
static void
along_row(along *t, const mr_walk *w, int64_t r, int64_t first, int64_t last)
{
    int64_t item = mr__dtype_size(t->x->dtype), at[RUN];
    int64_t size = t->x->dim[t->axis];
    char *to = (char *)t->out->data + (r * t->n + first) * item;
    bool near = t->index->dtype == MR_UINT32 && t->index_step == 1 &&
                t->axis_stride == 1 && t->x_step == 0 && size <= INT32_MAX &&
                (item == 4 || item == 8);
    const mr_resolve_tier *tier = mr__resolve_of();

    for (int64_t j = first, n; j < last; j += n, to += n * item) {
        int64_t good;

        n = last - j < RUN ? last - j : RUN;
        if (near && (item == 4 ? tier->pick4 : tier->pick8)(
                        to, (const char *)t->x->data + w->offset[0] * item,
                        (const uint32_t *)t->index->data + w->offset[1] + j, n,
                        (uint32_t)size - 1))
            continue;
        good = mr__index_run(t->index, w->offset[1] + j * t->index_step,
                             t->index_step, n, size, size - 1, at);
        if (good < n)
            mr__index_note(&t->bad, r * t->n + j + good);
        else
            along_run(t, to,
                      (const char *)t->x->data +
                          (w->offset[0] + j * t->x_step) * item,
                      at, n);
    }
}

/* Output rows are the last axis, cut where it is long: its entries read through
 * the index, on the indexed axis, which may be the last one itself. */
static void
along_piece(void *ctx, int64_t begin, int64_t end)
{
    along *t = ctx;
    int64_t row = begin / t->n_cuts, cut = begin % t->n_cuts;
    mr_walk w = t->rows;

    mr__walk_seek(&w, row);
    for (int64_t u = begin; u < end; u++) {
        int64_t first = cut * CUT, left = t->n - first;

        along_row(t, &w, row, first, first + (left < CUT ? left : CUT));
        if (++cut == t->n_cuts) {
            cut = 0;
            row++;
            mr__walk_next(&w);
        }
    }
}

mr_code
mr__cpu_take_along_axis(const mr_kernel_args *a)
{
    const mr_axis_params *p = a->params;
    const mr_kernel_view *x = &a->in[0], *index = &a->in[1], *out = &a->out[0];
    int32_t last = out->ndim - 1;
    uint32_t skip = 1U << last;
    int64_t stride[MR_MAX_NDIM], bad;
    along t = {.x = x, .index = index, .out = out, .axis = p->axis};

    if (out->size == 0)
        return MR_OK;
    memcpy(stride, x->stride, (size_t)x->ndim * sizeof *stride);
    stride[p->axis] = 0;
    mr__walk_init(&t.rows, out->ndim, out->dim, skip);
    mr__walk_add(&t.rows, out->ndim, stride, skip);
    mr__walk_add(&t.rows, out->ndim, index->stride, skip);
    mr__walk_merge(&t.rows);
    t.n = out->dim[last];
    t.x_step = stride[last];
    t.index_step = index->stride[last];
    t.axis_stride = x->stride[p->axis];
    atomic_init(&t.bad, INT64_MAX);
    t.n_cuts = (t.n - 1) / CUT + 1;
    mr__cpu_for(out->size / t.n * t.n_cuts,
                mr__cpu_grain(2.0 * (double)(t.n < CUT ? t.n : CUT)),
                along_piece, &t);
    bad = atomic_load_explicit(&t.bad, memory_order_relaxed);
    if (bad == INT64_MAX)
        return MR_OK;
    mr__walk_seek(&t.rows, bad / t.n);
    return mr__index_fail(
        mr__index_read(index, t.rows.offset[1] + bad % t.n * t.index_step),
        p->axis, x->dim[p->axis]);
}
