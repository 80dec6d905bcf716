/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter.c -- writing through index arrays: scatter.
 *
 * The result is the same for any number of threads: what goes to one place
 * is combined in row-major order of the updates by one thread.  Slices of
 * different offsets do not overlap when every indexed axis has size 1 in
 * them, so points are dealt out by a hash of their offset, and each thread
 * runs through all points for its own.  Many numbers added up in few places
 * are added in parts of a fixed number.  Other scatters run on one thread.
 * Nothing is written before all indices are checked.
 *
 * Halves that are added are added in float32 and rounded once
 * (scatter_halves.c).  (Slices of more than one entry of an indexed axis may
 * overlap: these are rounded each time.)
 * Called by: device.c, put.c.  Calls: index.c, scatter_halves.c, the tier's
 * elementwise kernels.
 */
#include <string.h>

#include "array/layout.h"
#include "base/pool.h"
#include "cpu/index.h"
#include "cpu/scatter.h"
#include "kernels/tier/tier.h"

enum { NEAR_BYTES = 1024, LINE_BYTES = 64 };

static int
moves_row(int64_t item)
{
    return item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : item == 8 ? 3 : 4;
}

mr_combine
mr__combine_of(int64_t mode, mr_dtype t)
{
    static const mr_k k[] = {[MR_SCATTER_ADD] = MR_K_ADD,
                             [MR_SCATTER_MULTIPLY] = MR_K_MULTIPLY,
                             [MR_SCATTER_MAXIMUM] = MR_K_MAXIMUM,
                             [MR_SCATTER_MINIMUM] = MR_K_MINIMUM};
    mr_combine c = {.mode = (mr_scatter_mode)mode,
                    .dtype = t,
                    .item = mr__dtype_size(t),
                    .row = moves_row(mr__dtype_size(t))};

    if (c.mode != MR_SCATTER_SET)
        c.map = mr__tier()->dtype[t]->map[k[mode]];
    return c;
}

/* Sums of one element, by far the most frequent, without a call. */
static bool
add_one(const mr_combine *c, void *to, const void *from)
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
void
mr__combine_run(const mr_combine *c, char *to, int64_t to_stride,
                const char *from, int64_t from_stride, int64_t n)
{
    static const int64_t steps[2] = {1, 1};
    const mr_tier_moves *moves = mr__tier()->moves;
    _Alignas(64) char a[MR_SCATTER_CHUNK * 16], b[MR_SCATTER_CHUNK * 16];

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

        m = n - i < MR_SCATTER_CHUNK ? n - i : MR_SCATTER_CHUNK;
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

void
mr__scatter_point(const mr_scatter *s, int64_t to, int64_t from)
{
    int64_t item = s->how.item;
    mr_walk w;

    if (s->n_runs == 1) {
        mr__combine_run(&s->how, s->to + to * item, s->to_stride,
                        s->from + from * item, s->from_stride, s->run);
        return;
    }
    w = s->slice;
    mr__walk_seek(&w, 0);
    for (int64_t r = 0; r < s->n_runs; r++, mr__walk_next(&w))
        mr__combine_run(&s->how, s->to + (to + w.offset[0]) * item,
                        s->to_stride, s->from + (from + w.offset[1]) * item,
                        s->from_stride, s->run);
}

static mr_owner
share_of(const mr_scatter *s, int64_t owner)
{
    uint64_t all = UINT64_C(1) << 32, n = (uint64_t)s->n_owners;
    uint64_t first = (uint64_t)owner * all / n,
             end = ((uint64_t)owner + 1) * all / n;

    return (mr_owner){(uint32_t)first, (uint32_t)(end - first - 1)};
}

/* Points of [i, i + MR_SCATTER_CHUNK) whose places are the owner's: how many.
 */
int64_t
mr__scatter_note(const mr_scatter *s, mr_owner owner, int64_t i, int64_t *mine)
{
    int64_t n =
        s->count - i < MR_SCATTER_CHUNK ? s->count - i : MR_SCATTER_CHUNK;

    return n <= 0 ? 0
                  : mr__resolve_of()->owned(mine, s->offset + i, n, i, owner);
}

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

/* False: none of the cases that stand here. */
static bool
elements_run(const mr_scatter *s, const mr_scatter_elements *e)
{
    bool add = s->how.mode == MR_SCATTER_ADD;
    mr_dtype t = s->how.dtype;

    if (s->wide)
        mr__scatter_widen(s, e);
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
owner_elements(const mr_scatter *s, mr_owner owner)
{
    int64_t mine[2][MR_SCATTER_CHUNK];
    mr_scatter_elements e = {
        .step = s->points.ndim == 0 ? 0 : s->points.stride[0][0]};
    int w = 0;

    e.n_next = mr__scatter_note(s, owner, 0, mine[0]);
    for (int64_t i = 0; i < s->count; i += MR_SCATTER_CHUNK, w ^= 1) {
        e.now = mine[w];
        e.n = e.n_next;
        e.next = mine[w ^ 1];
        e.n_next =
            mr__scatter_note(s, owner, i + MR_SCATTER_CHUNK, mine[w ^ 1]);
        if (!elements_run(s, &e))
            return false;
    }
    return true;
}

/* Runs of the output and of the updates are brought near, up to NEAR_BYTES. */
void
mr__scatter_near(const char *to, const char *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes && i < NEAR_BYTES; i += LINE_BYTES) {
        __builtin_prefetch(from + i);
        __builtin_prefetch(to + i, 1);
    }
}

/* The same where updates are runs, each met while the next comes near. */
static void
owner_runs(const mr_scatter *s, mr_owner owner)
{
    int64_t item = s->how.item, mine[MR_SCATTER_CHUNK], n;
    int64_t step = s->points.ndim == 0 ? 0 : s->points.stride[0][0] * item;
    bool dense = s->to_stride == 1 && s->from_stride == 1;
    int64_t bytes = dense ? s->run * item : 0;

    for (int64_t i = 0; i < s->count; i += MR_SCATTER_CHUNK) {
        n = mr__scatter_note(s, owner, i, mine);
        for (int64_t k = 0; k < n; k++) {
            if (k + 1 < n)
                mr__scatter_near(s->to + s->offset[mine[k + 1]] * item,
                                 s->from + mine[k + 1] * step, bytes);
            mr__combine_run(&s->how, s->to + s->offset[mine[k]] * item,
                            s->to_stride, s->from + mine[k] * step,
                            s->from_stride, s->run);
        }
    }
}

/* Everything at places that this owner has. */
static void
scatter_owner(const mr_scatter *s, int64_t owner)
{
    mr_owner its = share_of(s, owner);
    bool runs = s->n_runs == 1 && s->points.ndim <= 1;
    mr_walk w = s->points;

    if (s->lists || (s->wide && s->run > 1)) {
        mr__scatter_halves(s, its, owner);
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
            mr__scatter_point(s, s->offset[i], w.offset[0]);
}

static void
scatter_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t owner = begin; owner < end; owner++)
        scatter_owner(ctx, owner);
}

void
mr__scatter_points(mr_scatter *s)
{
    mr__cpu_for(s->n_owners, 1, scatter_piece, s);
}

int64_t
mr__scatter_owners(int64_t updates)
{
    return updates >= 1 << 15 ? mr__pool_threads() : 1;
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
    uint16_t halves[MR_SCATTER_CHUNK];
    float x[MR_SCATTER_CHUNK];

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
        int64_t stop = s->n * (part + 1) / PARTS, at[MR_SCATTER_CHUNK];

        sums_clear(s, part);
        for (int64_t i = s->n * part / PARTS, n; i < stop; i += n) {
            int64_t good;

            n = stop - i < MR_SCATTER_CHUNK ? stop - i : MR_SCATTER_CHUNK;
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

/* The slice's last dim as a run, the rest as a walk. */
static void
slice_plan(mr_scatter *s, const mr_kernel_view *out,
           const mr_kernel_view *updates, int32_t n_index)
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

static int64_t
points_of(const mr_kernel_args *a)
{
    return a->n_in > 2 ? a->in[1].size : 1;
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

static mr_scatter_way
way_of(const mr_kernel_args *a)
{
    const mr_scatter_params *p = a->params;

    return slices_apart(a)
               ? mr__scatter_way((mr_scatter_mode)p->mode, &a->out[0],
                                 points_of(a), a->in[a->n_in - 1].size)
               : MR_SCATTER_PLAIN;
}

size_t
mr__cpu_scatter_workspace(const mr_kernel_args *a)
{
    int64_t count = points_of(a);

    return (size_t)count * sizeof(int64_t) +
           mr__scatter_room(way_of(a), &a->out[0], count,
                            mr__scatter_owners(a->in[a->n_in - 1].size));
}

mr_code
mr__cpu_scatter(const mr_kernel_args *a)
{
    const mr_scatter_params *p = a->params;
    const mr_kernel_view *out = &a->out[0], *updates = &a->in[a->n_in - 1];
    int32_t n_index = updates->ndim - out->ndim;
    mr_index_axis axes[MR_MAX_NDIM];
    mr_scatter s = {.how = mr__combine_of(p->mode, out->dtype),
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
        s.n_owners = mr__scatter_owners(updates->size);
    mr__scatter_run(&s, out, way_of(a), (int64_t *)a->workspace + s.count);
    return MR_OK;
}
