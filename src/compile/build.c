/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c -- from a trace to a program.
 *
 * Walk: the nodes that depend on a placeholder, and the views of constants
 * among their inputs, in topological order.  Whatever else they read is
 * captured: evaluated once and kept.  Group: the one fuser of eval/.  Each
 * value that a step makes gets a number; views share the value of what they
 * look at, with other strides.  Where values lie is said last: place.c.
 *
 * Shapes are fixed and so is how the arguments lie: all strides are known here.
 *
 * Called by: program.c.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "compile/place.h"
#include "compile/steps.h"
#include "compile/verify.h"
#include "eval/check.h"
#include "eval/registry.h"
#include "graph/read.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/ops.h"
#include "marram/scope.h"

/* A node of the trace. */
typedef struct build_node {
    mr_fuse_node f; /* first */
    mr_slot slot;
    mr_slot *outs; /* of tuples */
    int *out_of;   /* of tuples: the output that each result is, -1; or NULL */
    int out;       /* the output it is, or -1 */
    bool late;     /* walked for outputs of one number alone */
} build_node;

typedef struct builder {
    mr_program *p;
    mr_arena scratch; /* what the program does not keep */
    mr_map node;      /* array -> build_node */
    mr_map known;     /* array -> its dependence, DEPENDS or FREE */
    mr_vec order;     /* build_node, topological */
    mr_vec consts;
    mr_vec stack;
    mr_array *const *args;
    uint64_t trace;
    size_t steps_cap;
    mr_placing values;
} builder;

/* The captured arrays of a device's program come with each call. */
static bool
is_on_host(const builder *bu)
{
    return !mr__device_has_queues(bu->p->device);
}

static char depends_mark, free_mark;
#define DEPENDS ((void *)&depends_mark)
#define FREE    ((void *)&free_mark)

/* ---- walking
 * -------------------------------------------------------------------- */

/* A recipe of this trace: others may be evaluated by other threads, and lose
 * their inputs. */
static bool
is_recipe(const builder *bu, const mr_array *x)
{
    return x->trace == bu->trace && mr__state(x) == MR_NEW &&
           !(x->flags & MR_NODE_PLACEHOLDER);
}

/* Dependence of x once its inputs' are known. */
static void *
judge(const builder *bu, const mr_array *x)
{
    if (x->flags & MR_NODE_PLACEHOLDER)
        return DEPENDS;
    if (!is_recipe(bu, x))
        return FREE;
    for (int i = 0; i < x->n_in; i++)
        if (mr__map_get(&bu->known, x->in[i]) == DEPENDS)
            return DEPENDS;
    return FREE;
}

static bool
add_node(builder *bu, mr_array *x)
{
    build_node *n = mr__arena_zero(&bu->scratch, sizeof *n);

    if (n == NULL)
        return false;
    n->f.x = x;
    n->out = -1;
    n->f.in =
        mr__arena_zero(&bu->scratch, (size_t)(x->n_in + 1) * sizeof *n->f.in);
    return n->f.in != NULL && mr__map_put(&bu->node, x, n) &&
           mr__vec_push(&bu->order, n);
}

/* x and the views below it, a chain, down to the constant. */
static bool
add_constant_views(builder *bu, mr_array *x)
{
    mr_vec chain = {0};
    bool ok = true;

    for (; ok && is_recipe(bu, x) && mr__map_get(&bu->node, x) == NULL;
         x = x->in[0])
        ok = mr__vec_push(&chain, x);
    while (ok && chain.n > 0)
        ok = add_node(bu, mr__vec_pop(&chain));
    mr__vec_free(&chain);
    return ok;
}

/* Is x a view of one number, or, in a further layout, of something that the
 * base evaluated?  There a number may be an array by now: the base has
 * captured a view of it, but not x. */
static bool
views_constant(const builder *bu, const mr_array *x)
{
    if (!is_recipe(bu, x) || mr__fuse_constant(x) != NULL)
        return is_recipe(bu, x);
    if (bu->p->base == NULL)
        return false;
    while (is_recipe(bu, x) && x->op->view != NULL && x->n_in == 1)
        x = x->in[0];
    return mr__state(x) == MR_DONE;
}

static bool
visit(builder *bu, mr_array *x)
{
    void *how = judge(bu, x);

    if (!mr__map_put(&bu->known, x, how))
        return false;
    if (how == FREE || (x->flags & MR_NODE_PLACEHOLDER))
        return true;
    for (int i = 0; i < x->n_in; i++)
        if (mr__map_get(&bu->known, x->in[i]) == FREE &&
            views_constant(bu, x->in[i]) && !add_constant_views(bu, x->in[i]))
            return false;
    return add_node(bu, x);
}

/* Depth first, children first, with a stack of our own. */
static bool
walk(builder *bu, mr_array *root)
{
    if (!mr__vec_push(&bu->stack, root))
        return false;
    while (bu->stack.n > 0) {
        mr_array *x = bu->stack.v[bu->stack.n - 1];
        size_t before = bu->stack.n;

        if (mr__map_get(&bu->known, x) != NULL) {
            mr__vec_pop(&bu->stack);
            continue;
        }
        if (is_recipe(bu, x))
            for (int i = x->n_in; i-- > 0;)
                if (mr__map_get(&bu->known, x->in[i]) == NULL &&
                    !mr__vec_push(&bu->stack, x->in[i]))
                    return false;
        if (bu->stack.n > before)
            continue;
        mr__vec_pop(&bu->stack);
        if (!visit(bu, x))
            return false;
    }
    return true;
}

static void
link_inputs(builder *bu)
{
    for (size_t i = 0; i < bu->order.n; i++) {
        build_node *n = bu->order.v[i];

        for (int k = 0; k < n->f.x->n_in; k++) {
            build_node *in = mr__map_get(&bu->node, n->f.x->in[k]);

            n->f.in[k] = in == NULL ? NULL : &in->f;
            if (in != NULL)
                in->f.n_uses++;
        }
    }
}

/* ---- slots
 * ------------------------------------------------------------------------ */

static void
slot_shape(mr_slot *s, const mr_array *x)
{
    s->dtype = (mr_dtype)x->dtype;
    s->ndim = x->ndim;
    s->size = x->size;
    s->dim = x->dim;
}

static const int64_t *
fresh_strides(builder *bu, int32_t ndim, const int64_t *dim)
{
    int64_t *s = mr__arena_alloc(&bu->p->arena, (size_t)(ndim + 1) * sizeof *s);

    if (s != NULL)
        mr__strides_fresh(ndim, dim, s);
    return s;
}

static bool
slot_arg(builder *bu, mr_array *x, mr_slot *s)
{
    for (int i = 0; i < bu->p->n_args; i++)
        if (bu->args[i] == x) {
            *s = (mr_slot){.kind = MR_SLOT_ARG, .index = i, .value = -1};
            slot_shape(s, x);
            s->stride = bu->p->arg_stride[i];
            return true;
        }
    mr__fail(MR_E_STATE,
             "the function uses an array of another function that is being "
             "traced: pass it as an argument");
    return false;
}

/* False with the error set.  One whose data is bad is kept as it is: what
 * depends on it fails with each call. */
static bool
const_evaluate(const builder *bu, mr_array *x)
{
    mr_code rc = is_on_host(bu) ? mr__array_ready(x) : mr_eval(x);

    if (rc != MR_OK && mr__state(x) == MR_FAILED) {
        mr_error_take();
        rc = MR_OK;
    }
    return rc == MR_OK;
}

/* A captured array's place in the list.  The base evaluates it: on the host its
 * strides are known only then. */
static bool
const_add(builder *bu, mr_array *x)
{
    if (bu->p->base == NULL) {
        if (!const_evaluate(bu, x) || !mr__vec_push(&bu->consts, x))
            return false;
        mr__retain(x);
    } else if (!mr__vec_push(&bu->consts, x)) {
        return false;
    }
    /* the base has read it, or somebody has evaluated a view since */
    assert(mr__state(x) == MR_DONE || mr__state(x) == MR_FAILED);
    bu->p->lacks_const |= mr__state(x) == MR_FAILED;
    return true;
}

/* Does x fill its memory, its axes in some order? */
static bool
is_dense(const mr_array *x)
{
    const int64_t *stride = mr__strides(x);
    int64_t filled = 1;
    uint64_t left = ((uint64_t)1 << x->ndim) - 1;

    for (int i = 0; i < x->ndim; i++) {
        if (x->dim[i] == 1)
            left &= ~((uint64_t)1 << i);
        else if (((left >> i) & 1) && stride[i] == filled) {
            left &= ~((uint64_t)1 << i);
            filled *= x->dim[i];
            i = -1;
        }
    }
    return left == 0;
}

/* What a device's program gets with each call comes as it lies, if that is
 * dense; else it is made row-major once, by settle_const. */
static bool
comes_as_it_lies(const mr_array *x)
{
    return (x->flags & MR_NODE_SCALAR_CONST) || x->size == 0 || is_dense(x);
}

static bool
slot_const(builder *bu, mr_array *x, mr_slot *s)
{
    size_t i = 0;

    while (i < bu->consts.n && bu->consts.v[i] != x)
        i++;
    if (i == bu->consts.n && !const_add(bu, x))
        return false;
    *s = (mr_slot){.kind = MR_SLOT_CONST, .index = (int32_t)i, .value = -1};
    slot_shape(s, x);
    if (is_on_host(bu)) {
        s->stride = mr__strides(x);
        return true;
    }
    s->kind = MR_SLOT_ARG;
    s->index += bu->p->n_args;
    s->stride = x->size > 0 && comes_as_it_lies(x)
                    ? mr__strides(x)
                    : fresh_strides(bu, x->ndim, x->dim);
    return s->stride != NULL;
}

static bool
slot_of(builder *bu, mr_array *x, mr_slot *s)
{
    const build_node *n = mr__map_get(&bu->node, x);

    if (n != NULL) {
        *s = n->slot;
        return true;
    }
    if (x->flags & MR_NODE_PLACEHOLDER)
        return slot_arg(bu, x, s);
    return slot_const(bu, x, s);
}

/* ---- steps
 * ------------------------------------------------------------------------------
 */

/* Slots of a step that is being made: written here, const afterwards. */
static mr_slot *
slots(const mr_slot *s)
{
    return (mr_slot *)(uintptr_t)s;
}

static mr_step *
step_new(builder *bu, const mr_array *node, int n_in, int n_out)
{
    mr_program *p = bu->p;
    mr_step *s;

    if ((size_t)p->n_steps == bu->steps_cap) {
        size_t cap = bu->steps_cap ? 2 * bu->steps_cap : 16;
        mr_step *more = mr__arena_alloc(&bu->scratch, cap * sizeof *more);

        if (more == NULL)
            return NULL;
        if (p->n_steps > 0)
            memcpy(more, p->steps, (size_t)p->n_steps * sizeof *more);
        p->steps = more;
        bu->steps_cap = cap;
    }
    s = &p->steps[p->n_steps];
    memset(s, 0, sizeof *s);
    s->node = node;
    s->n_in = n_in;
    s->n_out = n_out;
    s->workspace = -1;
    s->in = mr__arena_zero(&p->arena, (size_t)(n_in + 1) * sizeof *s->in);
    s->out = mr__arena_zero(&p->arena, (size_t)(n_out + 1) * sizeof *s->out);
    if (s->in == NULL || s->out == NULL)
        return NULL;
    p->n_steps++;
    return s;
}

/* A fresh value of this shape, row-major; `out`: the output it is, or -1. */
static bool
slot_fresh(builder *bu, mr_dtype dtype, int32_t ndim, const int64_t *dim,
           int64_t size, int out, mr_slot *s)
{
    *s = (mr_slot){
        .kind = MR_SLOT_TEMP,
        .value = mr__value_new(&bu->values, size * mr__dtype_size(dtype), out),
        .dtype = dtype,
        .ndim = ndim,
        .size = size,
        .dim = dim,
        .stride = fresh_strides(bu, ndim, dim)};
    return s->value >= 0 && s->stride != NULL;
}

static bool
place_value(builder *bu, build_node *n)
{
    const mr_array *x = n->f.x;

    return slot_fresh(bu, (mr_dtype)x->dtype, x->ndim, x->dim, x->size, n->out,
                      &n->slot);
}

static bool
place_tuple(builder *bu, build_node *n)
{
    const mr_array *x = n->f.x;

    n->outs = mr__arena_zero(&bu->scratch, (size_t)x->n_out * sizeof *n->outs);
    if (n->outs == NULL)
        return false;
    for (int k = 0; k < x->n_out; k++) {
        const mr_tuple_out *o = &x->tuple[k];

        if (!slot_fresh(bu, o->dtype, o->ndim, o->dim, o->size,
                        n->out_of == NULL ? -1 : n->out_of[k], &n->outs[k]))
            return false;
    }
    return true;
}

/* A row-major copy of `from`, on behalf of x. */
static bool
copy_step(builder *bu, const mr_array *x, const mr_slot *from, int out,
          mr_slot *to)
{
    mr_step *s = step_new(bu, x, 1, 1);

    if (s == NULL || !slot_fresh(bu, from->dtype, from->ndim, from->dim,
                                 from->size, out, to))
        return false;
    *slots(s->in) = *from;
    *slots(s->out) = *to;
    return true;
}

/* ---- views
 * -------------------------------------------------------------------------------
 */

static bool
apply_view(builder *bu, const mr_array *x, const mr_slot *in, mr_slot *out,
           bool *needs_copy)
{
    mr_layout a, b;
    int64_t *stride;

    *needs_copy = false;
    a.ndim = in->ndim;
    a.offset = 0;
    memcpy(a.dim, in->dim, (size_t)in->ndim * sizeof *a.dim);
    memcpy(a.stride, in->stride, (size_t)in->ndim * sizeof *a.stride);
    if (!x->op->view(x, &a, &b)) {
        *needs_copy = true;
        return true;
    }
    stride =
        mr__arena_alloc(&bu->p->arena, (size_t)(b.ndim + 1) * sizeof *stride);
    if (stride == NULL)
        return false;
    memcpy(stride, b.stride, (size_t)b.ndim * sizeof *stride);
    *out = *in;
    out->byte_offset += b.offset * mr__dtype_size(in->dtype);
    slot_shape(out, x);
    out->stride = stride;
    return true;
}

static int
result_index(const mr_array *x)
{
    return (int)((const mr_output_params *)mr__params(x))->index;
}

static bool
view_slot(builder *bu, build_node *n)
{
    mr_array *x = n->f.x;
    build_node *from = (build_node *)n->f.in[0];
    mr_slot in, copied;
    bool needs_copy;

    if (x->op == &mr__op_output) {
        n->slot = from->outs[result_index(x)];
        return true;
    }
    /* a view of a constant that was evaluated with a captured array since: it
     * has let its input go */
    if (mr__state(x) == MR_DONE)
        return slot_const(bu, x, &n->slot);
    if (!slot_of(bu, x->in[0], &in))
        return false;
    if (!apply_view(bu, x, &in, &n->slot, &needs_copy))
        return false;
    if (!needs_copy)
        return true;
    return copy_step(bu, x, &in, -1, &copied) &&
           apply_view(bu, x, &copied, &n->slot, &needs_copy);
}

/* A view that the caller gets is copied, unless it is all of a value, row
 * after row, that can be made there. */
static bool
lies_in_output(builder *bu, const build_node *n)
{
    const mr_slot *s = &n->slot;
    mr_value *v;

    if (s->kind != MR_SLOT_TEMP)
        return false;
    v = &bu->values.value[s->value];
    if (v->out < 0 && s->byte_offset == 0 &&
        s->size * mr__dtype_size(s->dtype) == v->size &&
        mr__is_contiguous(s->ndim, s->dim, s->stride))
        v->out = n->out;
    return v->out == n->out;
}

static bool
add_view(builder *bu, mr_fuse_group *g)
{
    build_node *n = (build_node *)g->root;
    mr_slot shown;

    if (!view_slot(bu, n))
        return false;
    if (n->out < 0 || lies_in_output(bu, n))
        return true;
    return copy_step(bu, n->f.x, &n->slot, n->out, &shown);
}

/* ---- kernels and blocks
 * --------------------------------------------------------------------- */

static bool
kernel_inputs(builder *bu, const mr_kernel *k, const mr_array *x, mr_slot *in)
{
    for (int i = 0; i < x->n_in; i++) {
        mr_slot copied;

        if (!slot_of(bu, x->in[i], &in[i]))
            return false;
        if (!mr__kernel_wants_row_major(k, i) ||
            mr__is_contiguous(in[i].ndim, in[i].dim, in[i].stride))
            continue;
        if (!copy_step(bu, x, &in[i], -1, &copied))
            return false;
        in[i] = copied;
    }
    return true;
}

static void
slot_view(mr_kernel_view *v, const mr_slot *s)
{
    *v = (mr_kernel_view){.dtype = s->dtype,
                          .ndim = s->ndim,
                          .size = s->size,
                          .dim = s->dim,
                          .stride = s->stride};
}

static bool
kernel_workspace(builder *bu, mr_step *s)
{
    mr_program *p = bu->p;
    bool joined = mr__step_is_joined(s);
    int n_in = mr__step_kernel_inputs(s), n_out = joined ? 1 : s->n_out;
    const mr_slot *out = joined ? mr__step_product(s) : s->out;
    mr_kernel_view *v =
        mr__arena_alloc(&bu->scratch, (size_t)(n_in + n_out + 1) * sizeof *v);
    mr_kernel_args a;
    size_t bytes = 0;

    if (v == NULL)
        return false;
    for (int i = 0; i < n_in; i++)
        slot_view(&v[i], &s->in[i]);
    for (int i = 0; i < n_out; i++)
        slot_view(&v[n_in + i], &out[i]);
    a = (mr_kernel_args){.op = s->node->op,
                         .params = s->node->params,
                         .n_in = n_in,
                         .n_out = n_out,
                         .in = v,
                         .out = v + n_in};
    if (s->kernel->workspace != NULL)
        bytes = s->kernel->workspace(&a);
    p->cost += s->kernel->cost != NULL ? s->kernel->cost(&a)
                                       : 100.0 + 0.1 * (double)v[n_in].size;
    if (bytes == 0)
        return true;
    s->workspace = mr__value_new(&bu->values, (int64_t)bytes, -1);
    return s->workspace >= 0;
}

static bool
fill_kernel(builder *bu, mr_fuse_group *g, const mr_kernel *k)
{
    build_node *n = (build_node *)g->root;
    const mr_array *x = n->f.x;
    mr_slot *in =
        mr__arena_alloc(&bu->scratch, (size_t)(x->n_in + 1) * sizeof *in);
    bool tuple = x->flags & MR_NODE_TUPLE;
    mr_step *s;

    if (in == NULL || !kernel_inputs(bu, k, x, in) ||
        !(tuple ? place_tuple(bu, n) : place_value(bu, n)))
        return false;
    s = step_new(bu, x, x->n_in, x->n_out);
    if (s == NULL)
        return false;
    s->kernel = k;
    memcpy(slots(s->in), in, (size_t)x->n_in * sizeof *in);
    memcpy(slots(s->out), tuple ? n->outs : &n->slot,
           (size_t)x->n_out * sizeof *in);
    return kernel_workspace(bu, s);
}

static bool
add_kernel(builder *bu, mr_fuse_group *g)
{
    build_node *n = (build_node *)g->root;
    const mr_array *x = n->f.x;
    const mr_kernel *k = mr__device_kernel(bu->p->device, x->op->id);

    if (mr__node_is_empty(x)) /* nothing to compute, as eval/ has it */
        return x->flags & MR_NODE_TUPLE ? place_tuple(bu, n)
                                        : place_value(bu, n);
    if (k == NULL) {
        mr__fail(MR_E_UNSUPPORTED, "the device %s has no kernel for %s",
                 bu->p->device->name, x->op->name);
        return false;
    }
    return fill_kernel(bu, g, k);
}

static bool
device_fuses(const builder *bu, const mr_block_code *c)
{
    for (int i = 0; i < c->n_inst; i++) {
        mr_dtype operand = (mr_dtype)c->reg_dtype[c->inst[i].arg[0]];

        if (!bu->p->device->fuses((mr_k)c->inst[i].k, operand)) {
            mr__fail(MR_E_UNSUPPORTED,
                     "the device %s does not fuse one of the operations",
                     bu->p->device->name);
            return false;
        }
    }
    return true;
}

static bool
add_block(builder *bu, mr_fuse_group *g)
{
    mr_block_group *b = mr__fuse_code(&bu->p->arena, g);
    mr_step *s;

    if (b == NULL || !device_fuses(bu, &b->code))
        return false;
    s = step_new(bu, g->root->x, b->code.n_in, b->code.n_out);
    if (s == NULL)
        return false;
    s->block = b;
    for (int i = 0; i < s->n_in; i++)
        if (!slot_of(bu, b->in[i].x, &slots(s->in)[i]))
            return false;
    for (int k = 0; k < s->n_out; k++) {
        build_node *n = (build_node *)b->out[k];

        if (!place_value(bu, n))
            return false;
        slots(s->out)[k] = n->slot;
    }
    for (mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        if (m->shared && !view_slot(bu, (build_node *)m))
            return false;
    bu->p->cost += 60.0 + 0.15 * (double)mr__block_points(b) * b->code.n_inst;
    return true;
}

/* ---- a product and what follows it
 * ---------------------------------------------------------------------- */

/* On devices with queues each is launched by itself. */
static bool
host_joins(const void *ctx, const mr_array *x)
{
    const builder *bu = ctx;
    const mr_kernel *k =
        is_on_host(bu) ? mr__device_kernel(bu->p->device, x->op->id) : NULL;

    return k != NULL && k->epilogue;
}

/* The operands of both but for the product. */
static mr_step *
joined_step(builder *bu, const mr_block_group *b, const mr_array *x)
{
    const mr_kernel *k = mr__device_kernel(bu->p->device, x->op->id);
    mr_slot *in =
        mr__arena_alloc(&bu->scratch, (size_t)(x->n_in + 1) * sizeof *in);
    mr_step *s;

    if (in == NULL || !kernel_inputs(bu, k, x, in))
        return NULL;
    s = step_new(bu, x, x->n_in + b->code.n_in, b->code.n_out + 1);
    if (s == NULL)
        return NULL;
    s->kernel = k;
    s->block = b;
    memcpy(slots(s->in), in, (size_t)x->n_in * sizeof *in);
    for (int j = 0; j < b->code.n_in; j++)
        if (j != b->product &&
            !slot_of(bu, b->in[j].x, &slots(s->in)[x->n_in + j]))
            return NULL;
    return s;
}

static bool
add_joined(builder *bu, mr_fuse_group *g)
{
    mr_block_group *b = mr__fuse_code(&bu->p->arena, g);
    build_node *product = (build_node *)g->product;
    const mr_array *x = g->product->x;
    mr_step *s = b == NULL ? NULL : joined_step(bu, b, x);

    /* the product's value comes before those that may be written over it */
    if (s == NULL || !place_value(bu, product))
        return false;
    *slots(mr__step_product(s)) = product->slot;
    s->n_out = b->code.n_out + 1;
    slots(s->out)[s->n_out - 1] = product->slot;
    for (int k = 0; k < b->code.n_out; k++) {
        build_node *n = (build_node *)b->out[k];

        if (!place_value(bu, n))
            return false;
        slots(s->out)[k] = n->slot;
    }
    if (!kernel_workspace(bu, s))
        return false;
    bu->p->cost += 0.15 * (double)mr__block_points(b) * b->code.n_inst;
    for (mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        if (m->shared && !view_slot(bu, (build_node *)m))
            return false;
    return true;
}

/* ---- all of it
 * -------------------------------------------------------------------------------
 */

/* A result of a tuple goes straight to output k. */
static bool
mark_result(builder *bu, build_node *b, int k)
{
    build_node *tuple = (build_node *)b->f.in[0];
    int n = tuple->f.x->n_out;

    if (tuple->out_of == NULL) {
        tuple->out_of =
            mr__arena_alloc(&bu->scratch, (size_t)n * sizeof *tuple->out_of);
        if (tuple->out_of == NULL)
            return false;
        for (int i = 0; i < n; i++)
            tuple->out_of[i] = -1;
    }
    if (tuple->out_of[result_index(b->f.x)] < 0)
        tuple->out_of[result_index(b->f.x)] = k;
    return true;
}

static bool
mark_outputs(builder *bu, mr_array *const *outs, int n)
{
    mr_program *p = bu->p;

    p->n_out = n;
    p->outs = mr__arena_zero(&p->arena, (size_t)(n + 1) * sizeof *p->outs);
    if (p->outs == NULL)
        return false;
    for (int k = 0; k < n; k++) {
        build_node *b = mr__map_get(&bu->node, outs[k]);

        slot_shape(&p->outs[k], outs[k]);
        /* depends on no argument, or is an output already: copy_others */
        if (b == NULL || b->out >= 0)
            continue;
        b->out = k;
        b->f.wanted = b->f.visible = true;
        if (outs[k]->op == &mr__op_output && !mark_result(bu, b, k))
            return false;
    }
    return true;
}

/* Results that depend on no argument, are one, or are an output already. */
static bool
copy_others(builder *bu, mr_array *const *outs, int n)
{
    for (int k = 0; k < n; k++) {
        mr_slot from, to;

        const build_node *b = mr__map_get(&bu->node, outs[k]);

        if (b != NULL && b->out == k)
            continue;
        if (!slot_of(bu, outs[k], &from) ||
            !copy_step(bu, outs[k], &from, k, &to))
            return false;
    }
    return true;
}

/* Which value each output is: said before memory is shared. */
static void
note_values(builder *bu)
{
    mr_program *p = bu->p;

    p->n_values = bu->values.n;
    for (int k = 0; k < p->n_out; k++)
        p->outs[k].value = -1;
    for (int32_t v = 0; v < bu->values.n; v++)
        if (bu->values.value[v].out >= 0)
            p->outs[bu->values.value[v].out].value = v;
}

/* The place of the last group that makes something which g reads. */
static int64_t
last_maker(const mr_fuse_group *g)
{
    int64_t place = 0;

    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        for (int i = 0; i < m->x->n_in; i++)
            if (m->in[i] != NULL && m->in[i]->group != g &&
                m->in[i]->group->place > place)
                place = m->in[i]->group->place;
    return place;
}

/* What was walked last runs as soon as it can, or what it reads would be kept
 * until the end: the logits, for a loss.  NULL: no memory. */
static mr_fuse_group *
move_up(builder *bu, mr_fuse_group *groups)
{
    mr_fuse_group head = {.next = NULL}, **end, *next;
    int64_t n = 0;

    for (const mr_fuse_group *g = groups; g != NULL; g = g->next)
        n++;
    /* behind each group that stays: the last of those that move there */
    end = mr__arena_alloc(&bu->scratch, (size_t)(n + 1) * sizeof(void *));
    if (end == NULL)
        return NULL;
    end[0] = &head;
    n = 0;
    for (mr_fuse_group *g = groups; g != NULL; g = next) {
        mr_fuse_group **at; /* what it stands behind */

        next = g->next;
        if (((const build_node *)g->root)->late) {
            g->place = last_maker(g);
            at = &end[g->place];
        } else { /* at the end of all */
            g->place = ++n;
            end[n] = end[n - 1];
            at = &end[n];
        }
        g->next = (*at)->next;
        (*at)->next = g;
        *at = g;
    }
    return head.next;
}

static bool
build_steps(builder *bu)
{
    mr_fuse_group *groups;
    mr_fuse_rules rules = {.fuses = mr__device_host()->fuses,
                           .mode = MR_FUSE_ALL,
                           .joins = host_joins,
                           .ctx = bu};

    if (mr__checking() || mr__compile_mode() == MR_COMPILE_NO_FUSE)
        rules.mode = MR_FUSE_OFF;
    else if (!is_on_host(bu))
        rules.mode = MR_FUSE_NO_GATHERS;
    if (bu->order.n == 0)
        return true;
    /* grouped as the host would, so that no device makes other groups, but
     * for gathers and draws, which a device's blocks do not read */
    groups = mr__fuse(&bu->scratch, (mr_fuse_node *const *)bu->order.v,
                      bu->order.n, &rules);

    if (groups != NULL)
        groups = move_up(bu, groups);
    if (groups == NULL)
        return false;
    mr__fuse_check(groups);
    for (mr_fuse_group *g = groups; g != NULL; g = g->next) {
        bool ok = g->kind == MR_GROUP_VIEW     ? add_view(bu, g)
                  : g->kind == MR_GROUP_KERNEL ? add_kernel(bu, g)
                  : g->product != NULL         ? add_joined(bu, g)
                                               : add_block(bu, g);

        if (!ok)
            return false;
    }
    return true;
}

static bool
build(builder *bu, mr_array *const *outs, int n_outs)
{
    size_t first;

    /* one number, as a loss is, last: the values that it and the gradients come
     * from may then belong to the gradients' steps */
    for (int k = 0; k < n_outs; k++)
        if (outs[k]->size != 1 && !walk(bu, outs[k]))
            return false;
    first = bu->order.n;
    for (int k = 0; k < n_outs; k++)
        if (outs[k]->size == 1 && !walk(bu, outs[k]))
            return false;
    for (size_t i = first; i < bu->order.n; i++)
        ((build_node *)bu->order.v[i])->late = true;
    link_inputs(bu);
    if (!mark_outputs(bu, outs, n_outs) || !build_steps(bu) ||
        !copy_others(bu, outs, n_outs))
        return false;
    note_values(bu);
    return mr__place(&bu->values);
}

static bool
keep_steps(builder *bu)
{
    mr_program *p = bu->p;
    size_t bytes = (size_t)p->n_steps * sizeof *p->steps;
    mr_step *steps = mr__arena_alloc(&p->arena, bytes);

    if (steps == NULL)
        return false;
    if (bytes > 0)
        memcpy(steps, p->steps, bytes);
    p->steps = steps;
    p->launch_bytes = 64;
    for (int i = 0; i < p->n_steps; i++)
        p->launch_bytes += mr__step_launch_bytes(p, &steps[i]);
    for (int i = 0; i < p->n_steps && p->heat == NULL; i++)
        if (steps[i].ready != NULL) {
            p->heat = mr__arena_zero(&p->arena, sizeof *p->heat);
            return p->heat != NULL;
        }
    return true;
}

static bool
settle_const(const builder *bu, mr_array **x)
{
    mr_scope s;
    mr_array *y;
    bool ok;

    if (is_on_host(bu) || comes_as_it_lies(*x))
        return true;
    s = mr_scope_begin();
    y = s.token == 0 ? NULL : mr_contiguous(*x, false);
    ok = y != NULL && mr_eval(y) == MR_OK;
    if (ok) {
        mr__retain(y);
        mr__release(*x);
        *x = y;
    }
    if (s.token != 0)
        mr_scope_end(s);
    return ok;
}

static bool
keep_consts(builder *bu)
{
    mr_program *p = bu->p;
    mr_array **x = (mr_array **)bu->consts.v;

    p->consts =
        mr__arena_alloc(&p->arena, (bu->consts.n + 1) * sizeof *p->consts);
    if (p->consts == NULL)
        return false;
    for (size_t i = 0; i < bu->consts.n; i++)
        if (!settle_const(bu, &x[i]))
            return false;
    for (size_t i = 0; i < bu->consts.n; i++)
        p->consts[i] = x[i];
    p->n_consts = (int)bu->consts.n;
    return true;
}

static int
n_depending(const builder *bu)
{
    int n = 0;

    for (size_t i = 0; i < bu->order.n; i++) {
        const build_node *k = bu->order.v[i];

        n += mr__map_get(&bu->known, k->f.x) == DEPENDS;
    }
    return n;
}

mr_code
mr__program_build(mr_program *p)
{
    builder bu = {.p = p, .args = p->keep};
    bool ok;

    /* without arguments there is nothing but constants */
    bu.trace = p->n_args > 0 ? p->keep[0]->trace : UINT64_MAX;
    bu.values = (mr_placing){.p = p, .scratch = &bu.scratch};
    ok = build(&bu, p->keep + p->n_args, p->n_keep - p->n_args) &&
         keep_steps(&bu) && keep_consts(&bu);
    p->n_nodes = (int)bu.order.n;
    p->n_left = n_depending(&bu);
    if (!ok) {
        p->n_steps = 0; /* they may have lain in scratch memory */
        for (size_t i = 0; i < bu.consts.n && p->base == NULL; i++)
            mr__release(bu.consts.v[i]);
    }
#ifndef NDEBUG
    if (ok)
        mr__verify_program(p);
#endif
    mr__arena_free(&bu.scratch);
    mr__map_free(&bu.node);
    mr__map_free(&bu.known);
    mr__vec_free(&bu.order);
    mr__vec_free(&bu.consts);
    mr__vec_free(&bu.stack);
    return ok ? MR_OK : mr__error_code();
}
