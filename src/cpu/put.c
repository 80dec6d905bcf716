/* SPDX-License-Identifier: Apache-2.0
 *
 * put.c -- put_along_axis.
 *
 * Rows, each with an index row of its own, are shared among threads.  Nothing
 * is written before all indices are checked.  Halves that are added go the way
 * of scatters, point by point, so that sums are rounded once.
 * Called by: device.c.  Calls: index.c, scatter.c, scatter_halves.c.
 */
#include "cpu/index.h"
#include "cpu/scatter.h"

typedef struct put {
    mr_combine how;
    const mr_kernel_view *out, *index, *values;
    mr_walk rows; /* without the axis: output, index, values */
    int32_t axis;
    bool check;      /* the first pass: look for bad indices, write nothing */
    int64_t *offset; /* NULL, or of each point in the output, for a scatter */
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
            mr__combine_run(&t->how, to + at[i] * stride * item, 1,
                            from + i * step * item, 1, 1);
}

static void
put_piece(void *ctx, int64_t begin, int64_t end)
{
    put *t = ctx;
    int64_t count = t->index->dim[t->axis], size = t->out->dim[t->axis];
    int64_t item = t->how.item, step = t->index->stride[t->axis],
            at[MR_SCATTER_CHUNK];
    mr_walk w = t->rows;

    mr__walk_seek(&w, begin);
    for (int64_t r = begin; r < end; r++, mr__walk_next(&w))
        for (int64_t j = 0, n; j < count; j += n) {
            int64_t from = w.offset[2] + j * t->values->stride[t->axis], good;

            n = count - j < MR_SCATTER_CHUNK ? count - j : MR_SCATTER_CHUNK;
            good = mr__index_run(t->index, w.offset[1] + j * step, step, n,
                                 size, size - 1, at);
            if (good < n)
                mr__index_note(&t->bad, r * count + j + good);
            else if (t->offset)
                for (int64_t k = 0; k < n; k++)
                    t->offset[r * count + j + k] =
                        w.offset[0] + at[k] * t->out->stride[t->axis];
            else if (!t->check)
                put_run(t, (char *)t->out->data + w.offset[0] * item,
                        (const char *)t->values->data + from * item, at, n);
        }
}

static mr_scatter_way
way_of(const mr_kernel_args *a)
{
    const mr_put_params *p = a->params;
    int64_t count = a->in[1].size;

    return mr__scatter_way((mr_scatter_mode)p->mode, &a->out[0], count, count);
}

size_t
mr__cpu_put_along_axis_workspace(const mr_kernel_args *a)
{
    int64_t count = a->in[1].size;
    mr_scatter_way way = way_of(a);

    return way == MR_SCATTER_PLAIN
               ? 0
               : (size_t)count * sizeof(int64_t) +
                     mr__scatter_room(way, &a->out[0], count,
                                      mr__scatter_owners(count));
}

/* All of it, point by point: rows, and the axis within each. */
static void
scatter_all(const put *t, mr_scatter_way way)
{
    const mr_kernel_view *index = t->index;
    int64_t dim[MR_MAX_NDIM], stride[MR_MAX_NDIM];
    int32_t ndim = 0;
    mr_scatter s = {.how = t->how,
                    .offset = t->offset,
                    .count = index->size,
                    .n_owners = mr__scatter_owners(index->size),
                    .to = t->out->data,
                    .from = t->values->data,
                    .run = 1,
                    .to_stride = 1,
                    .from_stride = 1,
                    .n_runs = 1};

    for (int32_t k = 0; k <= index->ndim; k++) {
        int32_t from = k < index->ndim ? k : t->axis;

        if (k == t->axis)
            continue;
        dim[ndim] = index->dim[from];
        stride[ndim++] = t->values->stride[from];
    }
    mr__walk_init(&s.points, ndim, dim, 0);
    mr__walk_add(&s.points, ndim, stride, 0);
    mr__walk_merge(&s.points);
    mr__scatter_run(&s, t->out, way, t->offset + s.count);
}

mr_code
mr__cpu_put_along_axis(const mr_kernel_args *a)
{
    const mr_put_params *p = a->params;
    const mr_kernel_view *out = &a->out[0], *index = &a->in[1];
    uint32_t skip = 1U << p->axis;
    int64_t count = index->dim[p->axis], n_rows, bad, grain;
    mr_scatter_way way = way_of(a);
    put t = {.how = mr__combine_of(p->mode, out->dtype),
             .out = out,
             .index = index,
             .values = &a->in[2],
             .axis = p->axis,
             .check = true,
             .offset = way == MR_SCATTER_PLAIN ? NULL : a->workspace};

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
    if (t.offset) {
        scatter_all(&t, way);
        return MR_OK;
    }
    t.check = false;
    mr__cpu_for(n_rows, grain, put_piece, &t);
    return MR_OK;
}
