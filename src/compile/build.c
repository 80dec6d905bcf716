/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c -- from a trace to a program.
 *
 * Walk: the nodes that depend on a placeholder, and the views of constants
 * among their inputs, in topological order.  Whatever else they read is
 * captured: evaluated once and kept.  Group: the one fuser of eval/.  Place:
 * each value gets a slot; views share the slot of what they look at, with
 * other strides; temporaries share the workspace by their last reader, and
 * results go straight to the call's outputs.
 *
 * Shapes are fixed, arguments are row-major, so all strides are known here.
 *
 * Called by: program.c.
 */
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "compile/steps.h"
#include "eval/check.h"
#include "eval/registry.h"
#include "graph/read.h"
#include "marram/eval.h"
#include "marram/ops.h"
#include "marram/scope.h"

/* A node of the program. */
typedef struct build_node {
    mr_fuse_node f; /* first */
    mr_slot slot;
    mr_slot *outs;           /* of tuples */
    int out;                 /* the output it is, or -1 */
    struct build_node *base; /* whose temporary it looks at */
    int32_t temp;            /* index of the temporary, or -1 */
} build_node;

typedef struct temp {
    int64_t offset, bytes;
    int last_step;
    bool alive;
} temp;

typedef struct builder {
    mr_program *p;
    mr_arena scratch; /* what the program does not keep */
    mr_map node;      /* array -> build_node */
    mr_map known;     /* array -> its dependence, DEPENDS or FREE */
    mr_vec order;     /* build_node, topological */
    mr_vec consts;
    mr_vec stack;
    mr_array *const *args;
    temp *temps;
    size_t n_temps, temps_cap;
    size_t steps_cap;
    size_t high; /* bytes of workspace so far */
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

static bool
is_recipe(const mr_array *x)
{
    return mr__state(x) == MR_NEW && !(x->flags & MR_NODE_PLACEHOLDER);
}

/* Dependence of x once its inputs' are known. */
static void *
judge(const builder *bu, const mr_array *x)
{
    if (x->flags & MR_NODE_PLACEHOLDER)
        return DEPENDS;
    if (!is_recipe(x))
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
    n->temp = -1;
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

    for (; ok && is_recipe(x) && mr__map_get(&bu->node, x) == NULL;
         x = x->in[0])
        ok = mr__vec_push(&chain, x);
    while (ok && chain.n > 0)
        ok = add_node(bu, mr__vec_pop(&chain));
    mr__vec_free(&chain);
    return ok;
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
        if (mr__map_get(&bu->known, x->in[i]) == FREE && is_recipe(x->in[i]) &&
            mr__fuse_constant(x->in[i]) != NULL &&
            !add_constant_views(bu, x->in[i]))
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
        if (is_recipe(x))
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
            s->kind = MR_SLOT_ARG;
            s->index = i;
            s->byte_offset = 0;
            slot_shape(s, x);
            s->stride = fresh_strides(bu, x->ndim, x->dim);
            return s->stride != NULL;
        }
    mr__fail(MR_E_STATE,
             "the function uses an array of another function that is being "
             "traced: pass it as an argument");
    return false;
}

/* A captured array is evaluated here, once: on the host its strides are known
 * only then. */
static bool
slot_const(builder *bu, mr_array *x, mr_slot *s)
{
    size_t i = 0;

    while (i < bu->consts.n && bu->consts.v[i] != x)
        i++;
    if (i == bu->consts.n) {
        if ((is_on_host(bu) ? mr__array_ready(x) : mr_eval(x)) != MR_OK ||
            !mr__vec_push(&bu->consts, x))
            return false;
        mr__retain(x);
    }
    slot_shape(s, x);
    s->byte_offset = 0;
    s->kind = is_on_host(bu) ? MR_SLOT_CONST : MR_SLOT_ARG;
    s->index = is_on_host(bu) ? (int32_t)i : bu->p->n_args + (int32_t)i;
    s->stride =
        is_on_host(bu) ? mr__strides(x) : fresh_strides(bu, x->ndim, x->dim);
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

/* ---- the workspace
 * -------------------------------------------------------------------- */

static int64_t
round_up(int64_t bytes)
{
    return (bytes + 63) & ~(int64_t)63;
}

/* First fit among the gaps that temporaries alive now leave. */
static int64_t
find_gap(const builder *bu, int64_t bytes)
{
    int64_t at = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (size_t i = 0; i < bu->n_temps; i++) {
            const temp *t = &bu->temps[i];

            if (t->alive && at < t->offset + t->bytes &&
                t->offset < at + bytes) {
                at = t->offset + t->bytes;
                moved = true;
            }
        }
    }
    return at;
}

static int32_t
temp_new(builder *bu, int64_t bytes)
{
    temp *t;

    if (bu->n_temps == bu->temps_cap) {
        size_t cap = bu->temps_cap ? 2 * bu->temps_cap : 32;
        temp *more = mr__arena_alloc(&bu->scratch, cap * sizeof *more);

        if (more == NULL)
            return -1;
        if (bu->n_temps > 0)
            memcpy(more, bu->temps, bu->n_temps * sizeof *more);
        bu->temps = more;
        bu->temps_cap = cap;
    }
    t = &bu->temps[bu->n_temps];
    t->bytes = round_up(bytes > 0 ? bytes : 1);
    t->offset = find_gap(bu, t->bytes);
    t->alive = true;
    t->last_step = -1;
    if ((size_t)(t->offset + t->bytes) > bu->high)
        bu->high = (size_t)(t->offset + t->bytes);
    return (int32_t)bu->n_temps++;
}

/* ---- steps
 * ------------------------------------------------------------------------------
 */

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

/* Uses that are still to come keep a temporary alive. */
static void
end_uses(builder *bu, const mr_fuse_group *g)
{
    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        for (int i = 0; i < m->x->n_in; i++) {
            build_node *in = (build_node *)m->in[i];

            if (in == NULL || in->f.group == g || in->base == NULL)
                continue;
            if (--in->base->f.candidate_uses == 0 && in->base->temp >= 0)
                bu->temps[in->base->temp].alive = false;
        }
}

/* The slot of a value that a step makes: an output of the call or memory of
 * the workspace. */
static bool
place_value(builder *bu, build_node *n)
{
    mr_slot *s = &n->slot;

    slot_shape(s, n->f.x);
    s->byte_offset = 0;
    s->stride = fresh_strides(bu, s->ndim, s->dim);
    if (s->stride == NULL)
        return false;
    n->base = n;
    if (n->out >= 0) {
        s->kind = MR_SLOT_OUT;
        s->index = n->out;
        return true;
    }
    s->kind = MR_SLOT_TEMP;
    n->temp = temp_new(bu, s->size * mr__dtype_size(s->dtype));
    if (n->temp < 0)
        return false;
    s->byte_offset = bu->temps[n->temp].offset;
    return true;
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
        mr_slot *s = &n->outs[k];
        int32_t t = temp_new(bu, o->size * mr__dtype_size(o->dtype));

        if (t < 0)
            return false;
        *s = (mr_slot){.kind = MR_SLOT_TEMP,
                       .byte_offset = bu->temps[t].offset,
                       .dtype = o->dtype,
                       .ndim = o->ndim,
                       .size = o->size,
                       .dim = o->dim,
                       .stride = fresh_strides(bu, o->ndim, o->dim)};
        if (s->stride == NULL)
            return false;
    }
    return true;
}

/* A copy of `from` (shaped as x) to a fresh slot. */
static bool
copy_step(builder *bu, const mr_array *x, const mr_slot *from, mr_slot *to)
{
    mr_step *s = step_new(bu, x, 1, 1);
    const int64_t *stride = fresh_strides(bu, from->ndim, from->dim);

    if (s == NULL || stride == NULL)
        return false;
    to->dtype = from->dtype;
    to->ndim = from->ndim;
    to->size = from->size;
    to->dim = from->dim;
    to->stride = stride;
    *(mr_slot *)(uintptr_t)s->in = *from;
    *(mr_slot *)(uintptr_t)s->out = *to;
    return true;
}

static bool
copy_to_temp(builder *bu, const mr_array *x, const mr_slot *from, mr_slot *to,
             int32_t *t)
{
    *t = temp_new(bu, from->size * mr__dtype_size(from->dtype));
    if (*t < 0)
        return false;
    to->kind = MR_SLOT_TEMP;
    to->index = 0;
    to->byte_offset = bu->temps[*t].offset;
    return copy_step(bu, x, from, to);
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

static bool
view_slot(builder *bu, build_node *n)
{
    mr_array *x = n->f.x;
    build_node *from = (build_node *)n->f.in[0];
    mr_slot in, copied;
    bool needs_copy;
    int32_t t;

    if (x->op == &mr__op_output) {
        int k = (int)((const mr_output_params *)mr__params(x))->index;

        n->slot = from->outs[k];
        return true;
    }
    /* a view of a constant that was evaluated with a captured array since: it
     * has let its input go */
    if (mr__state(x) == MR_DONE)
        return slot_const(bu, x, &n->slot);
    if (!slot_of(bu, x->in[0], &in))
        return false;
    n->base = from == NULL ? NULL : from->base;
    if (!apply_view(bu, x, &in, &n->slot, &needs_copy))
        return false;
    if (!needs_copy)
        return true;
    if (!copy_to_temp(bu, x, &in, &copied, &t))
        return false;
    n->base = n;
    n->temp = t;
    n->f.candidate_uses = n->f.n_uses;
    return apply_view(bu, x, &copied, &n->slot, &needs_copy);
}

/* A view that the caller gets is copied to its output. */
static bool
show_view(builder *bu, build_node *n)
{
    mr_slot to = {.kind = MR_SLOT_OUT, .index = n->out};

    return copy_step(bu, n->f.x, &n->slot, &to);
}

static bool
add_view(builder *bu, mr_fuse_group *g)
{
    build_node *n = (build_node *)g->root;

    if (!view_slot(bu, n))
        return false;
    if (n->base != NULL && n->base != n)
        n->base->f.candidate_uses += n->f.n_uses;
    if (n->out >= 0 && !show_view(bu, n))
        return false;
    end_uses(bu, g);
    return true;
}

/* ---- kernels and blocks
 * --------------------------------------------------------------------- */

static bool
kernel_inputs(builder *bu, const mr_kernel *k, const mr_array *x, mr_slot *in,
              mr_vec *copies)
{
    for (int i = 0; i < x->n_in; i++) {
        mr_slot copied;
        int32_t t;

        if (!slot_of(bu, x->in[i], &in[i]))
            return false;
        if (!((k->contiguous & MR_KERNEL_ALL_CONTIGUOUS) ||
              (i < 31 && k->contiguous >> i & 1)) ||
            mr__is_contiguous(in[i].ndim, in[i].dim, in[i].stride))
            continue;
        if (!copy_to_temp(bu, x, &in[i], &copied, &t) ||
            !mr__vec_push(copies, (void *)(uintptr_t)(t + 1)))
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
kernel_workspace(builder *bu, mr_step *s, mr_vec *scratch)
{
    mr_program *p = bu->p;
    mr_kernel_view *v = mr__arena_alloc(
        &bu->scratch, (size_t)(s->n_in + s->n_out + 1) * sizeof *v);
    mr_kernel_args a;
    size_t bytes = 0;
    int32_t t;

    if (v == NULL)
        return false;
    for (int i = 0; i < s->n_in; i++)
        slot_view(&v[i], &s->in[i]);
    for (int i = 0; i < s->n_out; i++)
        slot_view(&v[s->n_in + i], &s->out[i]);
    a = (mr_kernel_args){.op = s->node->op,
                         .params = s->node->params,
                         .n_in = s->n_in,
                         .n_out = s->n_out,
                         .in = v,
                         .out = v + s->n_in};
    if (s->kernel->workspace != NULL)
        bytes = s->kernel->workspace(&a);
    p->cost += s->kernel->cost != NULL ? s->kernel->cost(&a)
                                       : 100.0 + 0.1 * (double)v[s->n_in].size;
    if (bytes == 0)
        return true;
    t = temp_new(bu, (int64_t)bytes);
    if (t < 0 || !mr__vec_push(scratch, (void *)(uintptr_t)(t + 1)))
        return false;
    s->workspace = bu->temps[t].offset;
    return true;
}

/* Slots of a step that is nearly made: written here, const afterwards. */
static mr_slot *
slots(const mr_slot *s)
{
    return (mr_slot *)(uintptr_t)s;
}

static bool
fill_kernel(builder *bu, mr_fuse_group *g, const mr_kernel *k, mr_vec *scratch)
{
    build_node *n = (build_node *)g->root;
    const mr_array *x = n->f.x;
    mr_slot *in =
        mr__arena_alloc(&bu->scratch, (size_t)(x->n_in + 1) * sizeof *in);
    bool tuple = x->flags & MR_NODE_TUPLE;
    mr_step *s;

    if (in == NULL || !kernel_inputs(bu, k, x, in, scratch) ||
        !(tuple ? place_tuple(bu, n) : place_value(bu, n)))
        return false;
    s = step_new(bu, x, x->n_in, x->n_out);
    if (s == NULL)
        return false;
    s->kernel = k;
    memcpy(slots(s->in), in, (size_t)x->n_in * sizeof *in);
    memcpy(slots(s->out), tuple ? n->outs : &n->slot,
           (size_t)x->n_out * sizeof *in);
    n->f.candidate_uses = n->f.n_uses;
    return kernel_workspace(bu, s, scratch);
}

static bool
add_kernel(builder *bu, mr_fuse_group *g)
{
    const mr_array *x = g->root->x;
    const mr_kernel *k = mr__device_kernel(bu->p->device, x->op->id);
    mr_vec scratch = {0};
    bool ok;

    if (k == NULL && x->size > 0) {
        mr__fail(MR_E_UNSUPPORTED, "the device %s has no kernel for %s",
                 bu->p->device->name, x->op->name);
        return false;
    }
    if (k == NULL) /* nothing to compute: no elements */
        return place_value(bu, (build_node *)g->root);
    ok = fill_kernel(bu, g, k, &scratch);
    for (size_t i = 0; ok && i < scratch.n; i++)
        bu->temps[(uintptr_t)scratch.v[i] - 1].alive = false;
    mr__vec_free(&scratch);
    if (ok)
        end_uses(bu, g);
    return ok;
}

/* An address that stands for a slot: the same for the same memory. */
static void *
stand_in(const mr_slot *s)
{
    uintptr_t kind = (uintptr_t)s->kind + 1, index = (uintptr_t)s->index;

    return (void *)((kind << 58 | index << 40) + (uintptr_t)s->byte_offset);
}

void
mr__step_launch(const mr_step *s, mr_block_launch *l)
{
    mr_task_operand o[2 * MR_CODE_MAX_IO];

    for (int i = 0; i < s->n_in + s->n_out; i++) {
        const mr_slot *slot = i < s->n_in ? &s->in[i] : &s->out[i - s->n_in];

        mr__slot_operand(slot, stand_in(slot), &o[i]);
    }
    mr__block_launch_make(s->block, o, o + s->n_in, l);
}

/* What the block's runs have in common, made once where the device can; and
 * its workspace. */
static bool
make_ready(builder *bu, mr_step *s)
{
    mr_program *p = bu->p;
    const mr_block_code *code = &s->block->code;
    mr_block_launch l;
    size_t bytes = 0;
    int32_t t;

    mr__step_launch(s, &l);
    if (p->device->block_ready != NULL) {
        s->ready = p->device->block_ready(code, &l, &p->arena, &bytes);
        if (s->ready == NULL)
            return false;
    } else if (p->device->block_workspace != NULL) {
        bytes = p->device->block_workspace(code, &l);
    }
    if (bytes == 0)
        return true;
    t = temp_new(bu, (int64_t)bytes);
    if (t < 0)
        return false;
    s->workspace = bu->temps[t].offset;
    bu->temps[t].alive = false;
    return true;
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
        n->f.candidate_uses = n->f.n_uses;
        slots(s->out)[k] = n->slot;
    }
    bu->p->cost += 60.0 + 0.15 * (double)g->root->x->size * b->code.n_inst;
    if (!make_ready(bu, s))
        return false;
    end_uses(bu, g);
    return true;
}

/* ---- all of it
 * -------------------------------------------------------------------------------
 */

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
        if (b == NULL)
            continue; /* depends on no argument: see copy_captured */
        b->out = k;
        b->f.wanted = b->f.visible = true;
    }
    return true;
}

/* Results that depend on no argument are captured arrays. */
static bool
copy_captured(builder *bu, mr_array *const *outs, int n)
{
    for (int k = 0; k < n; k++) {
        mr_slot from, to = {.kind = MR_SLOT_OUT, .index = k};

        if (mr__map_get(&bu->node, outs[k]) != NULL)
            continue;
        if (!slot_of(bu, outs[k], &from) || !copy_step(bu, outs[k], &from, &to))
            return false;
    }
    return true;
}

static bool
build_steps(builder *bu)
{
    mr_fuse_group *groups;

    if (bu->order.n == 0)
        return true;
    /* grouped as the host would, so that no device makes other groups */
    groups = mr__fuse(&bu->scratch, (mr_fuse_node *const *)bu->order.v,
                      bu->order.n, mr__device_host()->fuses,
                      mr__checking() ? MR_FUSE_OFF : MR_FUSE_ALL);

    if (groups == NULL)
        return false;
    mr__fuse_check(groups);
    for (mr_fuse_group *g = groups; g != NULL; g = g->next) {
        bool ok = g->kind == MR_GROUP_VIEW    ? add_view(bu, g)
                  : g->kind == MR_GROUP_BLOCK ? add_block(bu, g)
                                              : add_kernel(bu, g);

        if (!ok)
            return false;
    }
    return true;
}

static bool
build(builder *bu, mr_array *const *outs, int n_outs)
{
    for (int k = 0; k < n_outs; k++)
        if (!walk(bu, outs[k]))
            return false;
    link_inputs(bu);
    return mark_outputs(bu, outs, n_outs) && build_steps(bu) &&
           copy_captured(bu, outs, n_outs);
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
        p->launch_bytes += mr__step_launch_bytes(&steps[i]);
    for (int i = 0; i < p->n_steps && p->heat == NULL; i++)
        if (steps[i].ready != NULL) {
            p->heat = mr__arena_zero(&p->arena, sizeof *p->heat);
            return p->heat != NULL;
        }
    return true;
}

/* What a device's program gets with each call is row-major, or each call would
 * copy it. */
static bool
settle_const(const builder *bu, mr_array **x)
{
    mr_scope s;
    mr_array *y;
    bool ok;

    if (is_on_host(bu) || ((*x)->flags & MR_NODE_SCALAR_CONST) ||
        mr__is_contiguous((*x)->ndim, (*x)->dim, mr__strides(*x)))
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

mr_code
mr__program_build(mr_program *p, mr_array *const *args, int n_args,
                  mr_array *const *outs, int n_outs)
{
    builder bu = {.p = p, .args = args};
    bool ok;

    p->n_args = n_args;
    ok = build(&bu, outs, n_outs) && keep_steps(&bu) && keep_consts(&bu);
    p->workspace = bu.high;
    p->n_nodes = (int)bu.order.n;
    if (!ok) {
        p->n_steps = 0; /* they may have lain in scratch memory */
        for (size_t i = 0; i < bu.consts.n; i++)
            mr__release(bu.consts.v[i]);
    }
    mr__arena_free(&bu.scratch);
    mr__map_free(&bu.node);
    mr__map_free(&bu.known);
    mr__vec_free(&bu.order);
    mr__vec_free(&bu.consts);
    mr__vec_free(&bu.stack);
    return ok ? MR_OK : mr__error_code();
}
