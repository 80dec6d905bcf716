/* SPDX-License-Identifier: Apache-2.0
 *
 * source.c -- gathers and puts as inputs of block programs.
 *
 * Indices are resolved some hundreds at a time, without a branch: one that is
 * out of range reads entry 0 (axes have less than 2^31 entries: eval/fuse.c),
 * and the run says so when it is over.  Which one it was is looked for only
 * then.
 *
 * Called by: interp.c; blocks.c of cpu/ and eval/ after a bad index.
 */
#include "kernels/source.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/control.h"
#include "base/error.h"
#include "kernels/index.h"
#include "kernels/lower.h"

enum { RUN = 256, AHEAD = 8 };

/* Uint64 values that int64 cannot hold are out of any range. */
int64_t
mr__index_at(mr_dtype t, const char *p)
{
    switch (t) {
    case MR_INT8:
        return *(const int8_t *)p;
    case MR_BOOL:
    case MR_UINT8:
        return *(const uint8_t *)p;
    case MR_INT16:
        return *(const int16_t *)(const void *)p;
    case MR_UINT16:
        return *(const uint16_t *)(const void *)p;
    case MR_INT32:
        return *(const int32_t *)(const void *)p;
    case MR_UINT32:
        return *(const uint32_t *)(const void *)p;
    case MR_INT64:
        return *(const int64_t *)(const void *)p;
    case MR_UINT64: {
        uint64_t i = *(const uint64_t *)(const void *)p;

        return i > INT64_MAX ? INT64_MAX : (int64_t)i;
    }
    case MR_FLOAT16:
    case MR_BFLOAT16:
    case MR_FLOAT32:
    case MR_FLOAT64:
    case MR_COMPLEX64:
    case MR_COMPLEX128:
        break;
    }
    assert(!"an index array has an integer dtype");
    return INT64_MAX;
}

/* Entries, from 0 on; false: some are out of range, and entry 0 instead. */
static bool
resolve(const mr_gather_run *g, const char *index, int64_t count, int32_t *at)
{
    const int32_t *x = (const int32_t *)(const void *)index;
    uint32_t n = (uint32_t)g->n;
    int bad = 0;

    if (g->index_dtype == MR_INT32 && g->index_stride == sizeof *x) {
        for (int64_t k = 0; k < count; k++) {
            at[k] = (int32_t)((uint32_t)x[k] + ((uint32_t)(x[k] >> 31) & n));
            bad |= (uint32_t)at[k] >= n;
        }
    } else {
        for (int64_t k = 0; k < count; k++) {
            int64_t i =
                mr__index_at(g->index_dtype, index + k * g->index_stride);

            i += i < 0 ? g->n : 0;
            bad |= i < 0 || i >= g->n;
            at[k] = (int32_t)(i < 0 || i >= g->n ? 0 : i);
        }
    }
    for (int64_t k = 0; bad && k < count; k++)
        at[k] = (uint32_t)at[k] < n ? at[k] : 0;
    return !bad;
}

#define VALUES(bytes)                                                          \
    for (int64_t k = 0; k < count; k++, from += stride)                        \
    memcpy(to + k * (bytes), from + at[k] * step, bytes)

static void
values(char *to, const char *from, int64_t stride, int64_t step, int64_t size,
       const int32_t *at, int64_t count)
{
    switch (size) {
    case 1:
        VALUES(1);
        break;
    case 2:
        VALUES(2);
        break;
    case 4:
        VALUES(4);
        break;
    case 8:
        VALUES(8);
        break;
    default:
        VALUES(16);
    }
}

/* All from one entry of the axis: a row of an embedding. */
static bool
one_entry(const mr_gather_run *g, char *to, const char *from, const char *index,
          int64_t count)
{
    int32_t at[RUN] = {0}, first;
    bool good = resolve(g, index, 1, &first);

    from += first * g->step;
    if (g->stride == g->size) {
        memcpy(to, from, (size_t)(count * g->size));
        return good;
    }
    for (int64_t k = 0; k < count; k += RUN) {
        int64_t n = count - k < RUN ? count - k : RUN;

        values(to + k * g->size, from + k * g->stride, g->stride, 0, g->size,
               at, n);
    }
    return good;
}

/* The lines at the beginning of an entry's row: what follows, the processor
 * foresees. */
static void
foresee(const mr_gather_run *g, const char *from, const char *index)
{
    int64_t i = mr__index_at(g->index_dtype, index);

    i += i < 0 ? g->n : 0;
    if (i < 0 || i >= g->n)
        return;
    from += i * g->step;
    for (int k = 0; k < 4; k++)
        __builtin_prefetch(from + (ptrdiff_t)64 * k);
}

bool
mr__gather_rows(const mr_gather_run *g, char *to, const char *from, int64_t row,
                const char *index, int64_t index_row, int64_t rows,
                int64_t ahead, int64_t count)
{
    bool good = true;

    for (int64_t k = 0; k < rows; k++, to += count * g->size) {
        if (g->index_stride == 0 && k + AHEAD < ahead)
            foresee(g, from + (k + AHEAD) * row,
                    index + (k + AHEAD) * index_row);
        good &=
            mr__gather_run(g, to, from + k * row, index + k * index_row, count);
    }
    return good;
}

bool
mr__gather_run(const mr_gather_run *g, char *to, const char *from,
               const char *index, int64_t count)
{
    int32_t at[RUN];
    bool good = true;

    if (g->index_stride == 0 && count > 0)
        return one_entry(g, to, from, index, count);
    for (int64_t k = 0, n; k < count; k += n) {
        n = count - k < RUN ? count - k : RUN;
        good &= resolve(g, index + k * g->index_stride, n, at);
        values(to + k * g->size, from + k * g->stride, g->stride, g->step,
               g->size, at, n);
    }
    return good;
}

/* One row after the other costs a store, not a row of them. */
static void
zeros_make(const mr_put_run *p, char *to)
{
    int64_t bytes = p->count * p->rows * p->size;

    if (*p->zeros < bytes)
        memset(to, 0, (size_t)bytes);
    else if (*p->put_at >= 0)
        memset(to + *p->put_at, 0, (size_t)p->size);
    *p->zeros = p->rows == 1 ? bytes > *p->zeros ? bytes : *p->zeros : 0;
    *p->put_at = -1;
}

bool
mr__put_rows(const mr_put_run *p, char *to, const char *value,
             const char *index)
{
    static const _Alignas(16) char zero[16];
    static const int64_t steps[2] = {1, 1};
    bool good = true;

    zeros_make(p, to);
    for (int64_t k = 0; k < p->rows; k++, to += p->row) {
        int64_t i = mr__index_at(p->index_dtype, index + k * p->index_row);
        const void *both[2] = {zero, value + k * p->value_row};
        int64_t at;

        i += i < 0 ? p->n : 0;
        good &= i >= 0 && i < p->n;
        at = i - p->first;
        if (at < 0 || at % p->hop != 0 || at / p->hop >= p->count)
            continue;
        at = at / p->hop * p->point;
        if (p->add != NULL)
            p->add(to + at, both, steps, 1);
        else
            memcpy(to + at, both[1], (size_t)p->size);
        *p->put_at = at;
    }
    return good;
}

/* The first of n indices, one after the other, that is out of range of the
 * entries of an axis. */
static bool
is_bad(mr_dtype t, const char *p, int64_t hop, int64_t n, int64_t entries,
       int64_t *index)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t i = mr__index_at(t, p + k * hop);

        *index = i;
        i += i < 0 ? entries : 0;
        if (i < 0 || i >= entries)
            return true;
    }
    return false;
}

/* Along the last dim, from where the others stand. */
static bool
bad_in_line(const mr_block_code *c, const mr_block_launch *l, int i,
            const int64_t *at, int64_t *index)
{
    const mr_code_source *s = &c->source[i];
    int last = l->n_kept + l->n_red - 1;
    int64_t count = last < 0 ? 1 : l->dim[last], n;
    const mr_index_code *how =
        s->computed ? &c->indices[s->computed - 1] : NULL;
    mr_index_line line = {.fn = NULL};
    mr_index_room room;

    for (int j = 0; j < (how == NULL ? 1 : how->n_in); j++) {
        const mr_block_io *io = &l->in[how == NULL ? s->index : how->in[j]];

        line.in[j] = io->data;
        line.stride[j] = last < 0 ? 0 : io->stride[last];
        for (int d = 0; d < last; d++)
            line.in[j] += at[d] * io->stride[d];
    }
    if (how == NULL)
        return is_bad((mr_dtype)c->reg_dtype[s->index], line.in[0],
                      line.stride[0], line.stride[0] == 0 ? 1 : count,
                      l->in[i].n, index);
    mr__index_begin(how, &line, &room);
    for (int64_t k = 0; k < count; k += n) {
        mr_dtype t = mr__index_dtype(how);

        n = count - k < room.points ? count - k : room.points;
        if (is_bad(t, mr__index_compute(how, &line, k, n, &room),
                   (int64_t)mr__elem_size(t), n, l->in[i].n, index))
            return true;
    }
    return false;
}

/* Does an index of gather i change along this dim? */
static bool
varies(const mr_block_code *c, const mr_block_launch *l, int i, int d)
{
    const mr_code_source *s = &c->source[i];
    const mr_index_code *how =
        s->computed ? &c->indices[s->computed - 1] : NULL;

    for (int j = 0; j < (how == NULL ? 1 : how->n_in); j++)
        if (l->in[how == NULL ? s->index : how->in[j]].stride[d] != 0)
            return true;
    return false;
}

bool
mr__block_bad_index(const mr_block_code *c, const mr_block_launch *l, int i,
                    int64_t *index)
{
    int64_t at[MR_MAX_NDIM] = {0};
    uint64_t control = mr__control_enter();
    bool bad = false;
    int d;

    do {
        bad = bad_in_line(c, l, i, at, index);
        for (d = l->n_kept + l->n_red - 2; d >= 0 && !bad; d--) {
            if (!varies(c, l, i, d))
                continue;
            if (++at[d] < l->dim[d])
                break;
            at[d] = 0;
        }
    } while (d >= 0 && !bad);
    mr__control_leave(control);
    return bad;
}

mr_code
mr__index_fail(int64_t index, int32_t axis, int64_t n)
{
    if (index == INT64_MAX) /* stands for all beyond (mr__index_at) */
        return mr__fail(MR_E_INDEX,
                        "an index of 2^63 - 1 or more is out of range for axis "
                        "%d of size %lld",
                        (int)axis, (long long)n);
    return mr__fail(MR_E_INDEX,
                    "index %lld is out of range for axis %d of size %lld",
                    (long long)index, (int)axis, (long long)n);
}
