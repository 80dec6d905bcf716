/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.c -- memory and tasks of block programs, alone and behind a product.
 *
 * A block may write into an input that it is the last to read.  A product that
 * it follows is made where one of its outputs will be, and is one task with it.
 *
 * Called by: reserve.c.  Calls: code.c, donate.c.
 */
#include <string.h>

#include "base/integers.h"
#include "eval/check.h"
#include "eval/donate.h"
#include "eval/place.h"
#include "eval/registry.h"
#include "eval/reserve.h"
#include "eval/transfer.h"

/* ---- blocks
 * ------------------------------------------------------------------------------
 */

/* Does a gather read this memory, in an order of its own, or an index, or are
 * there keys?  The task's operands from `first` on are the block's. */
static bool
is_read_through(const mr_block_group *b, const mr_task *t, int first,
                const mr_buffer *m)
{
    const mr_code_source *s = b->code.source;

    for (int i = 0; i < b->code.n_in && s != NULL; i++)
        if (s[i].kind != MR_FROM_MEMORY && t->in[first + i].buffer == m)
            return true;
    return false;
}

/* The operand whose memory output k may overwrite, or -1: the instruction
 * that writes must be the last that reads. */
static int
donor(const mr_plan *p, const mr_fuse_group *g, const mr_block_group *b,
      const mr_task *t, int first, int k, const bool *taken)
{
    const mr_block_code *c = &b->code;
    const mr_array *x = b->out[k]->x;
    int writes = c->out[k].reg - c->n_in - c->n_const;

    for (int j = 0; j < c->n_in; j++) {
        const mr_task_operand *o = &t->in[first + j];
        bool later = is_read_through(b, t, first, o->buffer);

        if (taken[j] || later || o->ndim != x->ndim || o->buffer == NULL ||
            mr__dtype_size(o->dtype) != mr__dtype_size((mr_dtype)x->dtype) ||
            o->size != x->size ||
            memcmp(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim) != 0 ||
            !mr__is_contiguous(o->ndim, o->dim, o->stride))
            continue;
        for (int i = writes + 1; i < c->n_inst && !later; i++)
            later = c->inst[i].arg[0] == j || c->inst[i].arg[1] == j ||
                    c->inst[i].arg[2] == j;
        if (!later && mr__donate_may(p, g, b->in[j].x,
                                     (mr_plan_node *)b->in[j].node, t->stream))
            return j;
    }
    return -1;
}

/* The checking mode looks at inputs afterwards; a bad index is found when some
 * is written already, and what an array was before is kept (former.c). */
static bool
may_donate(const mr_fuse_group *g, const mr_block_group *b)
{
    const mr_code_source *from = b->code.source;

    for (int i = 0; from != NULL && i < b->code.n_in; i++)
        if (from[i].kind == MR_FROM_GATHER || from[i].kind == MR_FROM_PUT)
            return false;
    return mr__donate_forgotten(g) && !mr__checking();
}

static bool
block_output(mr_plan *p, mr_task *t, const mr_block_group *b, int first, int k,
             int from)
{
    mr_plan_node *n = (mr_plan_node *)b->out[k];
    mr_array *x = n->f.x;

    if (from >= 0) {
        if (!mr__reserve_over(p, t, first + from, b->in[from].node,
                              b->in[from].x, x->ndim,
                              t->in[first + from].stride, &n->place))
            return false;
        p->destructive = true;
    } else if (!mr__reserve_fresh(p, t, (mr_dtype)x->dtype, x->ndim, x->dim,
                                  x->size, &n->place)) {
        return false;
    }
    n->place.source = x;
    n->place.base = n;
    n->materialised = true;
    mr__reserve_operand(&t->out[k], &n->place, x);
    t->out[k].keep = NULL;
    t->out[k].is_source = false;
    return mr__plan_completes(p, t, x);
}

static double
block_cost(const mr_task *t, const mr_block_group *b)
{
    double bytes = 0.0, points = (double)mr__block_points(b);

    for (int i = 0; i < t->n_in; i++)
        bytes += (double)(t->in[i].size * mr__dtype_size(t->in[i].dtype));
    for (int i = 0; i < t->n_out; i++)
        bytes += (double)(t->out[i].size * mr__dtype_size(t->out[i].dtype));
    return 40.0 + 0.1 * bytes + 0.1 * points * b->code.n_inst;
}

/* A program that the device cannot run as a whole runs on the host. */
static __attribute__((cold)) bool
block_device(mr_plan *p, mr_task *t, const mr_block_group *b)
{
    const mr_block_code *c = &b->code;

    if (c->source != NULL)
        return mr__reserve_settle(p, t, mr__device_host());
    for (int i = 0; i < c->n_inst; i++) {
        mr_dtype operand = (mr_dtype)c->reg_dtype[c->inst[i].arg[0]];

        if (!t->device->fuses((mr_k)c->inst[i].k, operand))
            return mr__reserve_settle(p, t, mr__device_host());
    }
    return true;
}

static bool
block_workspace(mr_plan *p, mr_task *t)
{
    size_t bytes = mr__block_task_workspace(t);

    if (bytes == 0)
        return true;
    t->workspace = mr__reserve_buffer(p, t, bytes);
    return t->workspace != NULL;
}

/* Views inside the block that later groups read. */
static bool
place_shared(mr_plan *p, const mr_fuse_group *g)
{
    for (mr_fuse_node *m = g->member; m != NULL; m = m->next_member) {
        mr_plan_node *n = (mr_plan_node *)m;

        if (!m->shared)
            continue;
        if (!mr__reserve_view(p, n))
            return false;
        if (n->place.base != NULL)
            n->place.base->uses_left += m->later_uses;
    }
    return true;
}

bool
mr__reserve_block(mr_plan *p, mr_fuse_group *g)
{
    mr_block_group *b = mr__fuse_code(&p->window->arena, g);
    bool taken[MR_CODE_MAX_IO] = {false};
    bool donate;
    mr_task *t;

    if (b == NULL)
        return false;
    t = mr__reserve_task(p, MR_TASK_BLOCK, g->root->x, b->code.n_in,
                         b->code.n_out);
    if (t == NULL)
        return false;
    t->block = b;
    t->n_in = b->code.n_in;
    t->n_out = b->code.n_out;
    if (__builtin_expect(t->space != 0, 0) && !block_device(p, t, b))
        return false;
    for (int j = 0; j < t->n_in; j++) {
        mr_place w = mr__place_of(p, b->in[j].x);

        if (__builtin_expect(!mr__place_is_in(&w, t->space), 0)) {
            taken[j] = true; /* a copy is not ours to overwrite */
            if (!mr__place_bring(p, t->node, b->in[j].x, t->space, &w))
                return false;
        }
        mr__reserve_operand(&t->in[j], &w, b->in[j].x);
    }
    donate = !g->has_reduction && may_donate(g, b);
    for (int k = 0; k < t->n_out; k++) {
        int from = donate ? donor(p, g, b, t, 0, k, taken) : -1;

        if (from >= 0)
            taken[from] = true;
        if (!block_output(p, t, b, 0, k, from))
            return false;
    }
    if (!place_shared(p, g))
        return false;
    t->cost = block_cost(t, b);
    if (g->has_reduction && !block_workspace(p, t))
        return false;
    mr__plan_append(p, t);
    p->n_fused += g->member->next_member != NULL;
    mr__reserve_uses(p, g);
    return true;
}

/* ---- a product and what follows it
 * --------------------------------------------------------------- */

/* The kernel's operands, then the block's.  None is borrowed: another
 * evaluation may detach a product that nobody sees.  `taken`: inputs of the
 * block that nothing may lie over, what the kernel reads and copies. */
static bool
joined_inputs(mr_plan *p, mr_task *t, const mr_block_group *b, mr_array *x,
              bool *taken)
{
    if (!mr__reserve_inputs(p, t, x))
        return false;
    for (int i = 0; i < x->n_in; i++)
        t->in[i].borrowed = false;
    for (int j = 0; j < b->code.n_in; j++) {
        mr_array *from = b->in[j].x;
        mr_place w;

        if (j == b->product)
            continue;
        w = mr__place_of(p, from);
        if (!mr__place_is_in(&w, t->space)) {
            taken[j] = true;
            if (!mr__place_bring(p, t->node, from, t->space, &w))
                return false;
        }
        mr__reserve_operand(&t->in[x->n_in + j], &w, from);
        for (int i = 0; i < x->n_in; i++)
            taken[j] = taken[j] || t->in[i].buffer == w.buffer;
    }
    t->n_in = x->n_in + b->code.n_in;
    return true;
}

/* The block's outputs, over what they may lie over, but nothing that the kernel
 * reads.  One that lies over nothing can be where the product is made: the
 * last, or -1. */
static bool
joined_block_outputs(mr_plan *p, mr_task *t, const mr_fuse_group *g,
                     const mr_block_group *b, bool *taken, int *host)
{
    bool donate = may_donate(g, b);
    const mr_array *x = g->product->x;

    *host = -1;
    for (int k = 0; k < b->code.n_out; k++) {
        const mr_array *y = b->out[k]->x;
        int from = donate ? donor(p, g, b, t, x->n_in, k, taken) : -1;

        if (from >= 0)
            taken[from] = true;
        else if (y->size == x->size && mr__dtype_size((mr_dtype)y->dtype) ==
                                           mr__dtype_size((mr_dtype)x->dtype))
            *host = k;
        if (!block_output(p, t, b, x->n_in, k, from))
            return false;
    }
    return true;
}

/* Whose memory the product gets: an output's, its own where somebody sees it,
 * else some that is written over soon again. */
static bool
joined_outputs(mr_plan *p, mr_task *t, const mr_fuse_group *g,
               const mr_block_group *b, mr_plan_node *product, bool *taken)
{
    mr_array *x = product->f.x;
    mr_task_operand *o = &t->in[x->n_in + b->product];
    mr_place w = {.stride = NULL};
    int host;

    if (!joined_block_outputs(p, t, g, b, taken, &host))
        return false;
    t->n_out = b->code.n_out;
    if (product->f.visible) {
        if (!mr__reserve_result(p, t, product, t->n_out, -1) ||
            !mr__plan_completes(p, t, x))
            return false;
        product->materialised = true;
        w = product->place;
        t->n_out++;
    } else if (host >= 0) {
        w = ((mr_plan_node *)b->out[host])->place;
    } else { /* its memory is part of the workspace */
        int64_t *stride = mr__place_strides(p, x->ndim, x->dim);

        if (stride == NULL)
            return false;
        mr__strides_fresh(x->ndim, x->dim, stride);
        w.stride = stride;
    }
    mr__reserve_operand(o, &w, x);
    o->buffer = NULL; /* the outputs and the workspace keep it */
    o->keep = NULL;
    o->is_source = false;
    return true;
}

/* The kernel's arguments and the workspace of both. */
static bool
joined_workspace(mr_plan *p, mr_task *t, const mr_block_group *b, mr_array *x)
{
    mr_task_operand *o = &t->in[x->n_in + b->product];
    mr_kernel_view *v =
        mr__arena_alloc(&p->window->arena, (size_t)(x->n_in + 1) * sizeof *v);
    size_t own, bytes = 0;

    if (v == NULL)
        return false;
    mr__operand_views(v, x->n_in, t->in, 1, o);
    t->args = (mr_kernel_args){.op = x->op,
                               .params = x->params,
                               .n_in = x->n_in,
                               .n_out = 1,
                               .in = v,
                               .out = v + x->n_in};
    if (t->kernel->workspace != NULL)
        bytes = t->kernel->workspace(&t->args);
    t->cost = block_cost(t, b) +
              (t->kernel->cost != NULL
                   ? t->kernel->cost(&t->args)
                   : mr__reserve_copy_cost(x->size, (mr_dtype)x->dtype));
    own = mr__whole_lines(bytes);
    if (o->data == NULL)
        bytes = own + (size_t)(x->size * mr__dtype_size((mr_dtype)x->dtype));
    if (bytes == 0)
        return true;
    t->workspace = mr__reserve_buffer(p, t, bytes);
    if (t->workspace == NULL)
        return false;
    if (o->data == NULL)
        v[x->n_in].data = o->data = (char *)t->workspace->data + own;
    return true;
}

bool
mr__reserve_joined(mr_plan *p, mr_fuse_group *g)
{
    mr_plan_node *product = (mr_plan_node *)g->product;
    mr_array *x = product->f.x;
    mr_block_group *b = mr__fuse_code(&p->window->arena, g);
    bool taken[MR_CODE_MAX_IO] = {false};
    mr_task *t;

    if (b == NULL)
        return false;
    t = mr__reserve_task(p, MR_TASK_KERNEL, x, x->n_in + b->code.n_in,
                         b->code.n_out + 1);
    if (t == NULL || !mr__reserve_kernel(p, t, x))
        return false;
    t->block = b;
    if (!joined_inputs(p, t, b, x, taken) ||
        !joined_outputs(p, t, g, b, product, taken) || !place_shared(p, g) ||
        !joined_workspace(p, t, b, x))
        return false;
    mr__plan_append(p, t);
    p->n_fused++;
    if (t->workspace != NULL)
        mr__reserve_again(p,
                          (mr_recycled){t->workspace, t->stream, true, NULL});
    mr__reserve_uses(p, g);
    return true;
}
