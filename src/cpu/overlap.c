/* SPDX-License-Identifier: Apache-2.0
 *
 * overlap.c -- frames of a signal added where they overlap.
 *
 * Each entry of the result is the sum of its frames in their order, so any
 * part of the result may be made by any thread.
 * Called by: device.c.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "cpu/cpu.h"
#include "ops/params.h"

enum { PIECE = 4096 };

typedef struct overlap {
    const mr_overlap_params *p;
    int64_t count, size, pieces;
    int64_t frame_step, step; /* of the input's last two axes, in elements */
    bool is_double;
    int reals; /* of an element */
    const mr_kernel_view *in;
    char *to;
    mr_walk walk; /* over batches of the input */
    atomic_bool vanishes;
} overlap;

/* Entries [i0, i1) of the signal += those of frame f, `reals` numbers each. */
#define ADD(name, type)                                                        \
    static void name(const overlap *o, type *to, const type *from, int64_t f,  \
                     int64_t i0, int64_t i1)                                   \
    {                                                                          \
        int64_t at = f * o->p->hop, step = o->step * o->reals;                 \
        int64_t first = i0 > at ? i0 : at;                                     \
        int64_t last = at + o->size < i1 ? at + o->size : i1;                  \
        const type *x = from + f * o->frame_step * o->reals;                   \
                                                                               \
        if (o->step == 1) {                                                    \
            for (int64_t i = (first - at) * o->reals,                          \
                         n = (last - at) * o->reals, d = (at - i0) * o->reals; \
                 i < n; i++)                                                   \
                to[i + d] += x[i];                                             \
            return;                                                            \
        }                                                                      \
        for (int64_t i = first; i < last; i++)                                 \
            for (int r = 0; r < o->reals; r++)                                 \
                to[(i - i0) * o->reals + r] += x[(i - at) * step + r];         \
    }
ADD(add_f32, float)
ADD(add_f64, double)

static bool
some_vanish(const overlap *o, const void *x, int64_t n)
{
    bool found = false;

    for (int64_t i = 0; i < n; i++) {
        double v = o->is_double ? ((const double *)x)[i]
                                : (double)((const float *)x)[i];

        found = found || fabs(v) < 1e-11;
    }
    return found;
}

static void
overlap_piece(void *ctx, int64_t begin, int64_t end)
{
    overlap *o = ctx;
    int64_t item = (o->is_double ? 8 : 4) * o->reals;
    mr_walk w = o->walk;

    for (int64_t u = begin; u < end; u++) {
        int64_t i0 = u % o->pieces * PIECE, i1 = i0 + PIECE, f;
        char *to;
        const char *from;

        i1 = i1 < o->p->length ? i1 : o->p->length;
        mr__walk_seek(&w, u / o->pieces);
        from = (const char *)o->in->data + w.offset[0] * item;
        to = o->to + (u / o->pieces * o->p->length + i0) * item;
        i0 += o->p->start;
        i1 += o->p->start;
        memset(to, 0, (size_t)((i1 - i0) * item));
        /* the first frame that reaches beyond i0 */
        f = i0 < o->size ? 0 : (i0 - o->size) / o->p->hop + 1;
        for (; f < o->count && f <= (i1 - 1) / o->p->hop; f++)
            if (o->is_double)
                add_f64(o, (double *)(void *)to,
                        (const double *)(const void *)from, f, i0, i1);
            else
                add_f32(o, (float *)(void *)to,
                        (const float *)(const void *)from, f, i0, i1);
        if (o->p->nonzero && some_vanish(o, to, i1 - i0))
            /* relaxed: read after the loop's end */
            atomic_store_explicit(&o->vanishes, true, memory_order_relaxed);
    }
}

mr_code
mr__cpu_overlap_add(const mr_kernel_args *a)
{
    const mr_kernel_view *in = &a->in[0];
    int32_t k = in->ndim - 2;
    uint32_t skip = 3U << k;
    overlap o = {.p = a->params, .in = in, .to = a->out[0].data};
    double overlaps;

    if (a->out[0].size == 0)
        return MR_OK;
    o.count = in->dim[k];
    o.size = in->dim[k + 1];
    o.frame_step = in->stride[k];
    o.step = in->stride[k + 1];
    o.is_double = in->dtype == MR_FLOAT64 || in->dtype == MR_COMPLEX128;
    o.reals = mr__dtype_is_complex(in->dtype) ? 2 : 1;
    o.pieces = (o.p->length - 1) / PIECE + 1;
    mr__walk_init(&o.walk, in->ndim, in->dim, skip);
    mr__walk_add(&o.walk, in->ndim, in->stride, skip);
    overlaps = 1.0 + (double)o.size / (double)o.p->hop;
    mr__cpu_for(mr__walk_size(&o.walk) * o.pieces,
                mr__cpu_grain(0.3 * overlaps * PIECE), overlap_piece, &o);
    /* relaxed: the loop has ended */
    if (atomic_load_explicit(&o.vanishes, memory_order_relaxed))
        return mr__fail(MR_E_VALUE,
                        "the windows add up to 0 somewhere in the signal, "
                        "which cannot be given back; take a window without "
                        "zeros, or a smaller hop_length");
    return MR_OK;
}
