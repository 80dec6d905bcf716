/* SPDX-License-Identifier: Apache-2.0
 *
 * program.c -- programs as arrays: making a holder, calling it, its end.
 *
 * Called by: function.c.
 */
#include "compile/program.h"

#include <string.h>

#include "array/buffer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "compile/cache.h"
#include "compile/steps.h"
#include "compile/tier1.h"
#include "eval/registry.h"
#include "eval/stream.h"
#include "graph/context.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/scope.h"

/* About what a node of the trace takes, with its lists. */
enum { NODE_BYTES = 192 };

static void
steps_free(mr_program *p)
{
    for (int i = 0; i < p->n_steps; i++)
        /* relaxed: nobody else has the program any more */
        mr__tier1_release(
            atomic_load_explicit(&p->steps[i].tier1, memory_order_relaxed));
    mr__arena_free(&p->arena);
    mr__dealloc(p);
}

static void
program_free(void *unused, void *data)
{
    mr_program *p = data;

    (void)unused;
    for (int i = 0; i < p->n_layouts; i++)
        steps_free(p->layout[i]);
    for (int i = 0; i < p->n_consts; i++)
        mr__release(p->consts[i]);
    for (int i = 0; i < p->n_keep; i++)
        mr__release(p->keep[i]);
    steps_free(p);
}

static bool
keep_trace(mr_program *p, mr_array *const *args, int n_args,
           mr_array *const *outs, int n_outs)
{
    p->keep = mr__arena_alloc(&p->arena,
                              (size_t)(n_args + n_outs + 1) * sizeof *p->keep);
    if (p->keep == NULL)
        return false;
    for (int i = 0; i < n_args; i++)
        p->keep[p->n_keep++] = mr__retain(args[i]);
    for (int i = 0; i < n_outs; i++)
        p->keep[p->n_keep++] = mr__retain(outs[i]);
    p->n_args = n_args;
    return true;
}

/* ---- how the arguments lie
 * -------------------------------------------------------- */

static bool
comes_so(const mr_program *p, const mr_kernel_args *a, uint64_t given)
{
    if (p->given != given)
        return false;
    for (int i = 0; i < p->n_args; i++) {
        const mr_kernel_view *v = &a->in[i + 1];

        if (memcmp(v->stride, p->arg_stride[i],
                   (size_t)v->ndim * sizeof *v->stride) != 0)
            return false;
    }
    return true;
}

/* The strides of the arguments: those of `a`, or row-major ones. */
static bool
keep_strides(mr_program *p, const mr_kernel_args *a)
{
    p->arg_stride = mr__arena_alloc(&p->arena, ((size_t)p->n_args + 1) *
                                                   sizeof *p->arg_stride);
    if (p->arg_stride == NULL)
        return false;
    for (int i = 0; i < p->n_args; i++) {
        const mr_array *x = p->keep[i];
        int64_t *s =
            mr__arena_alloc(&p->arena, ((size_t)x->ndim + 1) * sizeof *s);

        if (s == NULL)
            return false;
        if (a == NULL)
            mr__strides_fresh(x->ndim, x->dim, s);
        else
            memcpy(s, a->in[i + 1].stride, (size_t)x->ndim * sizeof *s);
        p->arg_stride[i] = s;
    }
    return true;
}

/* p with another layout of its arguments, all of it in p->arena. */
static bool
layout_build(mr_program *p, const mr_program *base, const mr_kernel_args *a,
             uint64_t given)
{
    p->base = base;
    p->device = base->device;
    p->given = given;
    p->n_args = base->n_args;
    p->keep = base->keep;
    p->n_keep = base->n_keep;
    return keep_strides(p, a) && mr__program_build(p) == MR_OK;
}

/* One for this run alone: the base has as many as it keeps. */
static const mr_program *
layout_once(const mr_program *base, const mr_kernel_args *a, uint64_t given,
            mr_arena *arena)
{
    mr_program *p = mr__arena_zero(arena, sizeof *p);
    bool ok;

    if (p == NULL)
        return NULL;
    p->arena = *arena; /* borrowed: its chunks die with the run */
    ok = layout_build(p, base, a, given);
    *arena = p->arena;
    p->heat = NULL; /* never hot */
    return ok ? p : NULL;
}

bool
mr__program_has_layouts(const mr_program *base)
{
    return base->n_consts == 0 || !mr__device_has_queues(base->device);
}

const mr_program *
mr__program_layout(mr_program *base, const mr_kernel_args *a, uint64_t given,
                   mr_arena *arena)
{
    mr_program *p;

    given &= base->could_take;
    if (!mr__program_has_layouts(base) || comes_so(base, a, given))
        return base;
    for (int i = 0; i < base->n_layouts; i++)
        if (comes_so(base->layout[i], a, given))
            return base->layout[i];
    if (base->n_layouts == MR_PROGRAM_LAYOUTS)
        return layout_once(base, a, given, arena);
    p = mr__alloc_zero(sizeof *p);
    if (p == NULL)
        return NULL;
    if (!layout_build(p, base, a, given)) {
        steps_free(p);
        return NULL;
    }
    p->bytes = sizeof *p + mr__arena_bytes(&p->arena);
    base->layout[base->n_layouts++] = p;
    /* relaxed: the cache looks after it was told, which releases */
    atomic_fetch_add_explicit(&base->layout_bytes, p->bytes,
                              memory_order_relaxed);
    mr__cache_grown();
    return p;
}

const mr_program *
mr__program_kept(const mr_program *base, const mr_kernel_args *a)
{
    return base->could_take == 0 && comes_so(base, a, 0) ? base : NULL;
}

/* ---- holders
 * ------------------------------------------------------------------ */

/* The trace, simplified and kept, and its steps. */
static bool
program_make(mr_program *p, mr_array *const *args, int n_args,
             mr_array *const *outs, int n_outs)
{
    mr_array **simple = mr__alloc_array((size_t)n_outs + 1, sizeof *simple);
    bool ok = simple != NULL;

    if (ok) {
        memcpy(simple, outs, (size_t)n_outs * sizeof *simple);
        ok = mr__simplify(simple, n_outs, &p->simplified) == MR_OK &&
             keep_trace(p, args, n_args, simple, n_outs) &&
             keep_strides(p, NULL) && mr__program_build(p) == MR_OK;
    }
    mr__dealloc(simple);
    return ok;
}

static mr_program *
program_for(const mr_device_table *device, mr_array *const *args, int n_args,
            mr_array *const *outs, int n_outs)
{
    mr_program *p = mr__alloc_zero(sizeof *p);

    if (p == NULL)
        return NULL;
    p->device = device;
    if (!program_make(p, args, n_args, outs, n_outs)) {
        program_free(NULL, p);
        return NULL;
    }
    return p;
}

mr_array *
mr__program_new(const mr_device_table *device, mr_array *const *args,
                int n_args, mr_array *const *outs, int n_outs)
{
    const int64_t bytes = (int64_t)sizeof(mr_program);
    mr_program *p;
    mr_buffer *b;

    /* NULL with the error set when there is no CPU device: MARRAM_CPU */
    if (mr__device_find((mr_device){MR_CPU, 0}) == NULL)
        return NULL;
    if (device == NULL)
        device = mr__device_host();
    p = program_for(device, args, n_args, outs, n_outs);
    if (p == NULL && device != mr__device_host() &&
        mr__error_code() == MR_E_UNSUPPORTED) {
        mr_error_take();
        p = program_for(mr__device_host(), args, n_args, outs, n_outs);
    }
    if (p == NULL)
        return NULL;
    p->bytes = sizeof *p + mr__arena_bytes(&p->arena) +
               (size_t)(p->n_nodes + p->n_keep) * NODE_BYTES;
    b = mr__buffer_wrap(p, sizeof *p, program_free, NULL);
    if (b == NULL) {
        program_free(NULL, p);
        return NULL;
    }
    b->read_only = true;
    mr__tier1_program(p);
    return mr__node_data(MR_UINT8, 1, &bytes, NULL, b, 0);
}

mr_array *
mr__program_holder(const mr_array *holder)
{
    const int64_t bytes = (int64_t)sizeof(mr_program);
    mr_scope s = mr_scope_none();
    mr_array *x = NULL;

    if (s.token == 0)
        return NULL;
    x = mr__node_data(MR_UINT8, 1, &bytes, NULL,
                      mr__buffer_retain(holder->buffer), 0);
    if (x != NULL) { /* a reference of no scope in place of the user's */
        mr__retain(x);
        mr_release(x);
    }
    mr_scope_end(s);
    return x;
}

size_t
mr__program_bytes(const mr_program *p)
{
    return p->bytes;
}

size_t
mr__program_layout_bytes(const mr_program *p)
{
    return atomic_load_explicit(&p->layout_bytes, memory_order_relaxed);
}

/* The node is of a stream of the program's device, whoever evaluates it: the
 * scoped one, or the thread's own. */
static __attribute__((cold)) mr_array *
call_there(const mr_program *p, int n, mr_array *const *in)
{
    mr_stream s = {mr__ctx.stream}, outer;
    mr_array *tuple;

    if (s.id == 0 || mr__stream_device(s.id) != p->device)
        s = mr_stream_of(p->device->device);
    if (s.id == 0)
        return NULL;
    outer = mr_stream_scope(s);
    tuple = mr__node_tuple(&mr__op_compiled, NULL, n, in, p->n_out);
    mr_stream_scope(outer);
    return tuple;
}

mr_array *
mr__program_call(mr_array *holder, mr_array *const *args)
{
    const mr_program *p = mr__program_of(holder);
    bool far = mr__device_has_queues(p->device);
    int n = p->n_args + 1 + (far ? p->n_consts : 0);
    mr_array *few[32], **in = few, *tuple;

    if (n > 32) {
        in = mr__alloc_array((size_t)n, sizeof *in);
        if (in == NULL)
            return NULL;
    }
    in[0] = holder;
    memcpy(in + 1, args, (size_t)p->n_args * sizeof *in);
    if (__builtin_expect(far, 0)) {
        memcpy(in + 1 + p->n_args, p->consts, (size_t)p->n_consts * sizeof *in);
        tuple = call_there(p, n, in);
    } else {
        /* not the holder, and nothing that the program could write over: the
         * references of that are counted */
        tuple = mr__node_tuple_lent(&mr__op_compiled, n, in, p->n_out,
                                    ~(p->could_take << 1 | 1));
    }
    if (in != few)
        mr__dealloc(in);
    return tuple;
}
