/* SPDX-License-Identifier: Apache-2.0
 *
 * walk.c -- parallel ranges, and walks over the points of strided operands.
 *
 * Called by: every kernel of this folder.
 */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/control.h"
#include "base/pool.h"
#include "cpu/cpu.h"

typedef struct range {
    int64_t n, grain;
    mr_cpu_body *body;
    void *ctx;
} range;

static void
range_piece(void *ctx, int64_t i)
{
    const range *r = ctx;
    int64_t begin = i * r->grain, end = begin + r->grain;

    r->body(r->ctx, begin, end < r->n ? end : r->n);
}

void
mr__cpu_for_turned(int64_t n, int64_t grain, bool turned, mr_cpu_body *body,
                   void *ctx)
{
    range r = {n, grain > 0 ? grain : 1, body, ctx};
    uint64_t control;

    if (n <= 0)
        return;
    control = mr__control_enter();
    if (n <= r.grain)
        body(ctx, 0, n);
    else
        mr__pool_loop_turned((n - 1) / r.grain + 1, turned, range_piece, &r);
    mr__control_leave(control);
}

void
mr__cpu_for(int64_t n, int64_t grain, mr_cpu_body *body, void *ctx)
{
    mr__cpu_for_turned(n, grain, false, body, ctx);
}

typedef struct units {
    _Atomic int64_t next;
    int64_t n;
    char *workspace;
    size_t slot_bytes;
    void (*body)(const void *ctx, int64_t unit, char *slot);
    const void *ctx;
} units;

/* Each slot takes units until none are left. */
static void
units_piece(void *ctx, int64_t begin, int64_t end)
{
    units *u = ctx;

    for (int64_t slot = begin; slot < end; slot++)
        for (;;) {
            /* relaxed: only who takes which unit */
            int64_t unit =
                atomic_fetch_add_explicit(&u->next, 1, memory_order_relaxed);

            if (unit >= u->n)
                break;
            u->body(u->ctx, unit, u->workspace + (size_t)slot * u->slot_bytes);
        }
}

void
mr__cpu_units(int n_slots, int64_t n, char *workspace, size_t slot_bytes,
              void (*body)(const void *ctx, int64_t unit, char *slot),
              const void *ctx)
{
    units u = {.n = n,
               .workspace = workspace,
               .slot_bytes = slot_bytes,
               .body = body,
               .ctx = ctx};

    atomic_init(&u.next, 0);
    mr__cpu_for(n < n_slots ? n : n_slots, 1, units_piece, &u);
}

int64_t
mr__cpu_grain(double ns)
{
    double n = 40000.0 / (ns > 0.01 ? ns : 0.01);

    return n < 1.0 ? 1 : (int64_t)n;
}

void
mr__walk_init(mr_walk *w, int32_t ndim, const int64_t *dim, uint32_t skip)
{
    w->ndim = 0;
    w->n = 0;
    for (int32_t k = 0; k < ndim; k++)
        if (!(skip >> k & 1U))
            w->dim[w->ndim++] = dim[k];
    memset(w->at, 0, sizeof w->at);
    memset(w->offset, 0, sizeof w->offset);
}

void
mr__walk_add(mr_walk *w, int32_t ndim, const int64_t *stride, uint32_t skip)
{
    int32_t to = 0;

    assert(w->n < MR_WALK_MAX);
    for (int32_t k = 0; k < ndim; k++)
        if (!(skip >> k & 1U))
            w->stride[w->n][to++] = stride[k];
    w->n++;
}

void
mr__walk_merge(mr_walk *w)
{
    int32_t to = 0;

    for (int32_t k = 0; k < w->ndim; k++) {
        bool merge = to > 0;

        if (w->dim[k] == 1)
            continue;
        for (int i = 0; merge && i < w->n; i++)
            merge = w->stride[i][to - 1] == w->stride[i][k] * w->dim[k];
        if (!merge)
            w->dim[to++] = w->dim[k];
        else
            w->dim[to - 1] *= w->dim[k];
        for (int i = 0; i < w->n; i++)
            w->stride[i][to - 1] = w->stride[i][k];
    }
    w->ndim = to;
}

int64_t
mr__walk_size(const mr_walk *w)
{
    int64_t n = 1;

    for (int32_t k = 0; k < w->ndim; k++)
        n *= w->dim[k];
    return n;
}

void
mr__walk_seek(mr_walk *w, int64_t index)
{
    memset(w->offset, 0, sizeof w->offset);
    for (int32_t k = w->ndim - 1; k >= 0; k--) {
        w->at[k] = index % w->dim[k];
        index /= w->dim[k];
        for (int i = 0; i < w->n; i++)
            w->offset[i] += w->at[k] * w->stride[i][k];
    }
}

void
mr__walk_next(mr_walk *w)
{
    for (int32_t k = w->ndim - 1; k >= 0; k--) {
        for (int i = 0; i < w->n; i++)
            w->offset[i] += w->stride[i][k];
        if (++w->at[k] < w->dim[k])
            return;
        for (int i = 0; i < w->n; i++)
            w->offset[i] -= w->dim[k] * w->stride[i][k];
        w->at[k] = 0;
    }
}
