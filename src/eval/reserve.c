/* SPDX-License-Identifier: Apache-2.0
 *
 * reserve.c -- memory and tasks for every group of a window.
 *
 * Groups are visited in the order in which they will run, so the last reader
 * of a buffer is known when it is planned: from there on, later groups of the
 * same stream may write into that memory (streams are first-in first-out).
 * A block may even write into an input that it is the last to read (blocks.c).
 * Memory is reused only where nobody can look: no user, no scope, no live trace
 * reaches the node or a recipe that would read it again.
 *
 * A task runs where its stream is, or on the host when that device lacks what
 * it takes; operands that lie elsewhere are brought over by tasks in front of
 * it (transfer.c).
 *
 * Nothing outside the plan is touched here; submit.c publishes.
 */
#include <string.h>

#include "base/error.h"
#include "eval/check.h"
#include "eval/donate.h"
#include "eval/place.h"
#include "eval/plan.h"
#include "eval/registry.h"
#include "eval/reserve.h"
#include "eval/stream.h"
#include "eval/transfer.h"
#include "marram/error.h"

/* ---- buffers
 * ----------------------------------------------------------------- */

static bool
grow(mr_plan *p, void **list, size_t *cap, size_t n, size_t entry)
{
    void *more;
    size_t new_cap = *cap ? 2 * *cap : 16;

    if (n < *cap)
        return true;
    more = mr__arena_alloc(&p->window->arena, new_cap * entry);
    if (more == NULL)
        return false;
    if (n > 0)
        memcpy(more, *list, n * entry);
    *list = more;
    *cap = new_cap;
    return true;
}

static mr_buffer *
recycled_take(mr_plan *p, size_t bytes, const mr_task *t)
{
    size_t best = p->n_recycled;

    for (size_t i = 0; i < p->n_recycled; i++) {
        const mr_recycled *r = &p->recycled[i];

        if (r->stream != t->stream || r->buffer->space != t->space ||
            r->buffer->capacity < bytes ||
            r->buffer->capacity > 2 * bytes + 4096)
            continue;
        if (best == p->n_recycled ||
            r->buffer->capacity < p->recycled[best].buffer->capacity)
            best = i;
    }
    if (best == p->n_recycled)
        return NULL;
    mr_buffer *b = p->recycled[best].buffer;

    p->destructive = p->destructive || !p->recycled[best].scratch;
    for (mr_task *of = p->recycled[best].of; of != NULL; of = of->over)
        of->gives = true;
    p->recycled[best] = p->recycled[--p->n_recycled];
    mr__buffer_widen(b, bytes);
    return b;
}

static mr_buffer *
buffer_or_wait(const mr_plan *p, const mr_device_table *d, size_t bytes)
{
    mr_buffer *b;

    mr__pool_waits = !p->exceeds;
    b = mr__buffer_new(d->pool(d->self), bytes);
    mr__pool_waits = false;
    return b;
}

/* There is no memory: copies that are elsewhere as well make room for it, on
 * this device, or on all when all together are at their limit. */
static __attribute__((cold)) mr_buffer *
buffer_after_eviction(mr_plan *p, const mr_device_table *d, size_t bytes)
{
    uint16_t space = mr__device_space(d);
    bool any = mr__pools_are_limited();
    mr_buffer *b = NULL;

    while (b == NULL && mr__error_code() == MR_E_MEMORY &&
           ((space != 0 && mr__copies_evict(p, space)) ||
            (any && mr__copies_evict(p, 0))))
        b = buffer_or_wait(p, d, bytes);
    if (b != NULL)
        mr_error_take();
    return b;
}

mr_buffer *
mr__plan_buffer(mr_plan *p, const mr_device_table *d, size_t bytes)
{
    void *list = p->owned;
    mr_buffer *b;

    if (!grow(p, &list, &p->owned_cap, p->n_owned, sizeof *p->owned))
        return NULL;
    p->owned = list;
    b = buffer_or_wait(p, d, bytes);
    if (__builtin_expect(b == NULL, 0))
        b = buffer_after_eviction(p, d, bytes);
    if (b != NULL)
        p->owned[p->n_owned++] = b;
    return b;
}

mr_buffer *
mr__reserve_buffer(mr_plan *p, const mr_task *t, size_t bytes)
{
    mr_buffer *b = recycled_take(p, bytes, t);

    return b != NULL ? b : mr__plan_buffer(p, t->device, bytes);
}

void
mr__reserve_again(mr_plan *p, mr_recycled r)
{
    void *list = p->recycled;

    if (!grow(p, &list, &p->recycled_cap, p->n_recycled, sizeof *p->recycled))
        return; /* it is only not reused */
    p->recycled = list;
    p->recycled[p->n_recycled++] = r;
}

static void
recycle(mr_plan *p, mr_plan_node *base)
{
    if (base->recycled || base->place.buffer == NULL ||
        (base->place.task != NULL && base->place.task->over_leaf))
        return;
    base->recycled = true;
    mr__reserve_again(
        p, (mr_recycled){base->place.buffer,
                         base->place.task ? base->place.task->stream : 0, false,
                         base->place.task});
}

/* ---- who can still look
 * ---------------------------------------------------------- */

static bool
is_output(const mr_fuse_node *f)
{
    return f->group->root == f || f->visible;
}

/* A consumer that can be asked again keeps its inputs' memory: an interior
 * that somebody reaches, or a result whose inputs a live trace keeps. */
static void
settle_reuse(mr_plan *p)
{
    for (size_t i = p->n; i-- > 0;) {
        mr_fuse_node *c = p->node[i];
        mr_plan_node *n = (mr_plan_node *)c;
        bool view = c->group->kind == MR_GROUP_VIEW;
        bool again = is_output(c) && !view
                         ? c->x->trace != 0 && mr__trace_live(c->x->trace)
                         : !n->reusable;

        if (!again)
            continue;
        for (int k = 0; k < c->x->n_in; k++)
            if (c->in[k] != NULL)
                ((mr_plan_node *)c->in[k])->reusable = false;
    }
}

static uint32_t
stream_of(const mr_plan *p, const mr_array *x)
{
    return x->stream == 0 ? p->stream
                          : mr__stream_planned(x->stream, p->stream);
}

/* The group's uses of things from outside are planned now. */
void
mr__reserve_uses(mr_plan *p, const mr_fuse_group *g)
{
    uint32_t stream = stream_of(p, g->root->x);

    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        for (int i = 0; i < m->x->n_in; i++) {
            mr_plan_node *in = (mr_plan_node *)m->in[i];
            mr_plan_node *base;

            if (in == NULL)
                continue;
            if (in->f.group == g) { /* read on the way, if anybody reads it */
                in->uses_left--;
                continue;
            }
            base = in->place.base;
            if (base == NULL) {
                mr__donate_view_read(in, stream);
                continue;
            }
            if (base->place.task != NULL && base->place.task->stream != stream)
                base->foreign = true;
            if (--base->uses_left == 0 && base->reusable && !base->foreign)
                recycle(p, base);
        }
}

/* ---- tasks
 * -------------------------------------------------------------------------- */

/* Every stream that gets a task needs a drainer in the end. */
bool
mr__plan_note_stream(mr_plan *p, uint32_t id)
{
    void *list = p->other;

    if (id == p->stream)
        return true;
    for (size_t i = 0; i < p->n_other; i++)
        if (p->other[i] == id)
            return true;
    if (!grow(p, &list, &p->other_cap, p->n_other, sizeof *p->other))
        return false;
    p->other = list;
    p->other[p->n_other++] = id;
    return true;
}

/* Where a task of this stream runs: on `device`. */
__attribute__((cold)) bool
mr__reserve_settle(mr_plan *p, mr_task *t, const mr_device_table *device)
{
    t->device = device;
    t->space = 0;
    t->flight = NULL;
    if (!mr__device_has_queues(device))
        return true;
    t->space = mr__device_space(device);
    t->flight = mr__arena_zero(&p->window->arena, sizeof *t->flight);
    if (t->flight == NULL)
        return false;
    t->flight->task = t;
    return true;
}

mr_task *
mr__reserve_task(mr_plan *p, mr_task_kind kind, mr_array *node, int n_in,
                 int n_out)
{
    mr_arena *a = &p->window->arena;
    mr_task *t = mr__arena_zero(a, sizeof *t);

    if (t == NULL)
        return NULL;
    t->in = mr__arena_zero(a, (size_t)(n_in + 1) * sizeof *t->in);
    t->out = mr__arena_zero(a, (size_t)(n_out + 1) * sizeof *t->out);
    t->link = mr__arena_zero(a, (size_t)(n_in + 1) * sizeof *t->link);
    if (t->in == NULL || t->out == NULL || t->link == NULL)
        return NULL;
    t->window = p->window;
    t->kind = kind;
    t->stream = stream_of(p, node);
    t->node = node;
    t->device = mr__stream_device(t->stream);
    if (__builtin_expect(mr__device_has_queues(t->device), 0) &&
        !mr__reserve_settle(p, t, t->device))
        return NULL;
    return mr__plan_note_stream(p, t->stream) ? t : NULL;
}

/* The list of nodes that t completes grows as views of them are met. */
bool
mr__plan_completes(mr_plan *p, mr_task *t, mr_array *x)
{
    if (t->n_done == t->done_cap) {
        int cap = t->done_cap ? 2 * t->done_cap : 4;
        mr_array **more =
            mr__arena_alloc(&p->window->arena, (size_t)cap * sizeof *more);

        if (more == NULL)
            return false;
        if (t->n_done > 0)
            memcpy(more, t->done, (size_t)t->n_done * sizeof *more);
        t->done = more;
        t->done_cap = cap;
    }
    t->done[t->n_done++] = x;
    return true;
}

void
mr__plan_append(mr_plan *p, mr_task *t)
{
    *p->last = t;
    p->last = &t->next;
    p->cost += t->cost;
    p->n_tasks++;
    p->n_kernels += t->kind == MR_TASK_BLOCK || t->kind == MR_TASK_KERNEL;
}

static void
set_operand(mr_task_operand *o, const mr_place *w, mr_dtype t, int32_t ndim,
            const int64_t *dim, int64_t size)
{
    o->data = w->data;
    o->buffer = w->buffer;
    o->keep = w->source != NULL ? w->source : w->owner;
    o->is_source = w->source != NULL;
    o->borrowed = false;
    o->lacks = false;
    o->dtype = t;
    o->ndim = ndim;
    o->size = size;
    o->dim = dim;
    o->stride = w->stride;
}

void
mr__reserve_operand(mr_task_operand *o, const mr_place *w, const mr_array *x)
{
    set_operand(o, w, (mr_dtype)x->dtype, x->ndim, x->dim, x->size);
}

/* A fresh place, row-major, that t fills. */
bool
mr__reserve_fresh(mr_plan *p, mr_task *t, mr_dtype dt, int32_t ndim,
                  const int64_t *dim, int64_t size, mr_place *w)
{
    int64_t *stride;

    memset(w, 0, sizeof *w);
    stride =
        mr__arena_alloc(&p->window->arena, (size_t)(ndim + 1) * sizeof *stride);
    w->buffer =
        mr__reserve_buffer(p, t, (size_t)size * (size_t)mr__dtype_size(dt));
    if (w->buffer == NULL || stride == NULL)
        return false;
    mr__strides_fresh(ndim, dim, stride);
    w->stride = stride;
    w->data = w->buffer->data;
    w->task = t;
    return true;
}

double
mr__reserve_copy_cost(int64_t size, mr_dtype t)
{
    return 30.0 + (double)(size * mr__dtype_size(t)) * 0.1;
}

/* ---- copies
 * ------------------------------------------------------------------------- */

/* A task that copies `in` (with x's dtype) row-major into a fresh place, on
 * `device` (NULL: the stream's), on behalf of a node. */
static mr_task *
copy_task(mr_plan *p, mr_array *on_behalf, const mr_device_table *device,
          const mr_array *x, const mr_place *in, mr_place *out)
{
    mr_task *t = mr__reserve_task(p, MR_TASK_BLOCK, on_behalf, 1, 1);
    mr_place from = *in;

    if (t == NULL || (device != NULL && device != t->device &&
                      !mr__reserve_settle(p, t, device)))
        return NULL;
    if (!mr__place_is_in(&from, t->space) &&
        !mr__place_bring(p, on_behalf, x, t->space, &from))
        return NULL;
    mr__reserve_operand(&t->in[0], &from, x);
    if (!mr__reserve_fresh(p, t, (mr_dtype)x->dtype, x->ndim, x->dim, x->size,
                           out))
        return NULL;
    t->n_in = t->n_out = 1;
    mr__reserve_operand(&t->out[0], out, x);
    t->cost = mr__reserve_copy_cost(x->size, (mr_dtype)x->dtype);
    mr__plan_append(p, t);
    return t;
}

/* ---- views
 * ---------------------------------------------------------------------------
 */

bool
mr__reserve_view(mr_plan *p, mr_plan_node *n)
{
    mr_array *x = n->f.x, *from = x->in[0];
    mr_place in, copied;
    mr_task *t;

    if (mr__place_is_projection(x))
        return mr__place_projection(p, n, &n->place) == MR_VIEW_OK;
    in = mr__place_of(p, from);
    switch (mr__place_view(p, n, &in, &n->place)) {
    case MR_VIEW_OK:
        return true;
    case MR_VIEW_NO_MEMORY:
        return false;
    case MR_VIEW_COPY:
        break;
    }
    t = copy_task(p, x, NULL, from, &in, &copied);
    if (t == NULL)
        return false;
    copied.source = x;
    copied.base = n;
    if (mr__place_view(p, n, &copied, &n->place) != MR_VIEW_OK)
        return false; /* row-major always has a view: no memory */
    n->materialised = true;
    return mr__plan_completes(p, t, x);
}

/* A task without work that is done when all inputs of a view are: what input 0
 * looks like, and what the view was to come after. */
static bool
alias_view(mr_plan *p, mr_plan_node *n)
{
    mr_array *x = n->f.x;
    mr_task *t = mr__reserve_task(p, MR_TASK_ALIAS, x, x->n_in, 0);

    if (t == NULL)
        return false;
    t->n_in = x->n_in;
    mr__reserve_operand(&t->in[0], &n->place, x);
    for (int i = 1; i < x->n_in; i++) {
        mr_place w = mr__place_of(p, x->in[i]);

        mr__reserve_operand(&t->in[i], &w, x->in[i]);
    }
    t->cost = 20.0;
    mr__plan_append(p, t);
    n->place.task = t;
    return mr__plan_completes(p, t, x);
}

/* A view that somebody can see becomes a node with memory. */
static bool
show_view(mr_plan *p, mr_plan_node *n)
{
    mr_array *x = n->f.x;
    mr_place w;
    mr_task *t;

    n->materialised = true;
    if (n->place.buffer == NULL) { /* a constant: real memory, since exporters
                                      may write */
        t = copy_task(p, x, NULL, x, &n->place, &w);
        if (t == NULL)
            return false;
        n->place = w;
        n->place.base = n;
        n->place.source = x;
        return mr__plan_completes(p, t, x);
    }
    if (n->place.base != NULL)
        n->place.base->reusable = false;
    if (x->n_in == 1 && n->place.task != NULL)
        return mr__plan_completes(p, n->place.task, x);
    if (x->n_in == 1 && n->place.source == NULL)
        return true; /* done at once */
    return alias_view(p, n);
}

static bool
plan_view(mr_plan *p, mr_fuse_group *g)
{
    mr_plan_node *n = (mr_plan_node *)g->root;

    if (!mr__reserve_view(p, n))
        return false;
    if (n->place.base != NULL && n->place.base != n)
        n->place.base->uses_left += n->f.n_uses;
    mr__donate_view(n);
    if (n->f.visible && !n->materialised && !show_view(p, n))
        return false;
    mr__reserve_uses(p, g);
    return true;
}

/* ---- giving memory away
 * -------------------------------------------------------------- */

/* A value that lies under another's is there until that is written, and again
 * when that fails (former.c).  Under a leaf's nobody else's comes: `over_leaf`.
 * Of nodes of this window it is known whose memory was taken: a list by `over`,
 * or at once where that is not enough.  Tasks in queues write in any case. */
static void
note_over(mr_task *t, const mr_plan_node *n, mr_array *leaf)
{
    mr_task *under = n == NULL ? NULL : n->place.task;

    if (n == NULL) {
        t->over_leaf = true;
        if (t->flight != NULL)
            /* relaxed: who asks has the plan lock too */
            atomic_fetch_or_explicit(&leaf->state, MR_STATE_GIVEN,
                                     memory_order_relaxed);
        return;
    }
    if (under == NULL)
        return;
    t->over_leaf = t->over_leaf || under->over_leaf;
    if (n->f.n_uses > 1 || t->over != NULL || t->flight != NULL)
        under->gives = true;
    else
        t->over = under;
}

/* A place in the memory of input `from`, this node or leaf, which nobody else
 * will read. */
bool
mr__reserve_over(mr_plan *p, mr_task *t, int from, mr_fuse_node *node,
                 mr_array *leaf, int32_t ndim, const int64_t *stride,
                 mr_place *w)
{
    memset(w, 0, sizeof *w);
    w->buffer = t->in[from].buffer;
    w->data = t->in[from].data;
    w->stride = mr__place_strides(p, ndim, stride);
    if (w->stride == NULL)
        return false;
    w->task = t;
    if (node != NULL)
        ((mr_plan_node *)node)->recycled = true;
    note_over(t, (mr_plan_node *)node, leaf);
    return true;
}

/* ---- kernels
 * ---------------------------------------------------------------------------
 */

/* Can this node alone see its input i?  Then that may be written over. */
static bool
input_given(const mr_plan *p, const mr_plan_node *n, const mr_task *t, int i)
{
    const mr_array *x = n->f.x;
    const mr_plan_node *in = (const mr_plan_node *)n->f.in[i];
    const mr_buffer *own = in == NULL ? x->in[i]->buffer : in->place.buffer;

    for (int k = 0; k < x->n_in; k++)
        if (k != i && x->in[k] == x->in[i])
            return false;
    return t->in[i].buffer == own && own != NULL &&
           mr__donate_may(p, n->f.group, x->in[i], in, t->stream);
}

/* The checking mode looks at inputs afterwards, a live trace may ask again. */
static bool
may_give(const mr_plan_node *n)
{
    return !mr__checking() && mr__donate_forgotten(n->f.group);
}

/* The input in whose memory the kernel writes its result, or -1: one that is
 * row-major, as its own, and lies there for nobody else.  What another task of
 * this window has read before must not be asked for again. */
static int
kernel_writes_over(mr_plan *p, const mr_plan_node *n, const mr_task *t)
{
    int from = t->kernel == NULL ? -1 : t->kernel->over - 1;
    const mr_array *x = n->f.x, *in = from < 0 ? NULL : x->in[from];

    if (in == NULL || in->dtype != x->dtype || in->ndim != x->ndim ||
        memcmp(in->dim, x->dim, (size_t)x->ndim * sizeof *x->dim) != 0 ||
        !mr__is_contiguous(x->ndim, x->dim, t->in[from].stride) ||
        !may_give(n) || !input_given(p, n, t, from))
        return -1;
    p->destructive =
        p->destructive || t->flight != NULL ||
        !mr__donate_sole(n->f.group, in, (mr_plan_node *)n->f.in[from]);
    return from;
}

/* Result k of the task's node, in the memory of input `from` if that is not
 * -1. */
bool
mr__reserve_result(mr_plan *p, mr_task *t, mr_plan_node *n, int k, int from)
{
    mr_array *x = n->f.x;
    bool tuple = x->flags & MR_NODE_TUPLE;
    mr_tuple_out one = {(mr_dtype)x->dtype, x->ndim, x->size, x->dim, NULL, 0};
    const mr_tuple_out *o = tuple ? &x->tuple[k] : &one;
    mr_place *w = tuple ? &n->outs[k] : &n->place;
    int64_t fresh[MR_MAX_NDIM];

    /* row-major as the input is, which in a program may have another shape */
    mr__strides_fresh(o->ndim, o->dim, fresh);
    p->destructive = p->destructive || (from >= 0 && t->kernel == NULL);
    if (from >= 0
            ? !mr__reserve_over(p, t, from, n->f.in[from], x->in[from], o->ndim,
                                fresh, w)
            : !mr__reserve_fresh(p, t, o->dtype, o->ndim, o->dim, o->size, w))
        return false;
    w->source = x;
    if (!tuple)
        w->base = n;
    set_operand(&t->out[k], w, o->dtype, o->ndim, o->dim, o->size);
    if (tuple)
        t->out[k].keep = NULL;
    return true;
}

static bool
place_output(mr_plan *p, mr_task *t, mr_plan_node *n)
{
    mr_array *x = n->f.x;
    const mr_op_exec *e = t->args.plan != NULL ? x->op->exec : NULL;

    if (x->flags & MR_NODE_TUPLE) {
        n->outs = mr__arena_zero(&p->window->arena,
                                 (size_t)x->n_out * sizeof *n->outs);
        if (n->outs == NULL)
            return false;
    }
    for (int k = 0; k < x->n_out; k++)
        if (!mr__reserve_result(p, t, n, k,
                                e == NULL ? kernel_writes_over(p, n, t)
                                          : e->lies_in(t->args.plan, k)))
            return false;
    t->n_out = x->n_out;
    n->materialised = true;
    return mr__plan_completes(p, t, x);
}

/* An input that is done keeps its buffer, and the node that reads it keeps the
 * input until it is done itself: the task needs no reference of its own, which
 * threads that read one array at a time would pass back and forth.  (Not so in
 * blocks: another evaluation may detach what is interior there.) */
static bool
is_held(const mr_array *in, const mr_place *w)
{
    return w->source == NULL && w->buffer != NULL && w->buffer == in->buffer &&
           mr__state(in) == MR_DONE;
}

static bool
stays_on_host(const mr_array *x, int i)
{
    return x->op->exec != NULL && i < x->op->exec->n_host;
}

/* An operator that runs itself takes them as they lie, on the host. */
static bool
wants_row_major(const mr_task *t, const mr_array *x, int i)
{
    return t->kernel != NULL
               ? mr__kernel_wants_row_major(t->kernel, i)
               : t->flight != NULL && !x->op->exec->as_it_lies(x, i);
}

bool
mr__reserve_inputs(mr_plan *p, mr_task *t, mr_array *x)
{
    for (int i = 0; i < x->n_in; i++) {
        mr_array *in = x->in[i];
        mr_place w = mr__place_of(p, in), copied;

        if (!mr__place_is_in(&w, t->space) && !stays_on_host(x, i) &&
            !mr__place_bring(p, x, in, t->space, &w))
            return false;
        if (wants_row_major(t, x, i) &&
            !mr__is_contiguous(in->ndim, in->dim, w.stride)) {
            mr_task *copy = copy_task(p, x, t->device, in, &w, &copied);

            if (copy == NULL)
                return false;
            copy->feeds = t;
            copy->feeds_in = i;
            w = copied;
        }
        mr__reserve_operand(&t->in[i], &w, in);
        t->in[i].borrowed = is_held(in, &w);
    }
    t->n_in = x->n_in;
    return true;
}

static bool
kernel_workspace(mr_plan *p, mr_task *t, mr_array *x)
{
    size_t bytes = 0;

    if (!mr__task_args(t))
        return false;
    if (t->kernel->workspace == NULL && t->kernel->cost == NULL) {
        bool over = t->kernel->over != 0 &&
                    t->in[t->kernel->over - 1].data == t->out[0].data;

        t->cost =
            over ? 0.0 : mr__reserve_copy_cost(x->size, (mr_dtype)x->dtype);
        for (int i = 0; i < t->n_in; i++)
            if (!over || i != t->kernel->over - 1)
                t->cost += mr__reserve_copy_cost(t->in[i].size, t->in[i].dtype);
        return true;
    }
    if (t->kernel->workspace != NULL)
        bytes = t->kernel->workspace(&t->args);
    t->cost = t->kernel->cost != NULL
                  ? t->kernel->cost(&t->args)
                  : mr__reserve_copy_cost(x->size, (mr_dtype)x->dtype);
    if (bytes == 0)
        return true;
    t->workspace = mr__reserve_buffer(p, t, bytes);
    return t->workspace != NULL;
}

/* Arguments that this node alone can see, as bits. */
static uint64_t
arguments_given(const mr_plan *p, const mr_plan_node *n, const mr_task *t)
{
    const mr_array *x = n->f.x;
    uint64_t given = 0;

    if (t->space != 0 || !may_give(n))
        return 0;
    for (int i = 1; i < x->n_in && i <= 64; i++)
        if (input_given(p, n, t, i))
            given |= UINT64_C(1) << (i - 1);
    return given;
}

/* The plan of an operator that brings its own execution. */
static bool
exec_plan(mr_plan *p, mr_task *t, const mr_plan_node *n)
{
    const mr_op_exec *e = n->f.x->op->exec;

    if (!mr__task_args(t))
        return false;
    t->args.plan =
        e->plan(n->f.x, &t->args, arguments_given(p, n, t), &p->window->arena);
    if (t->args.plan == NULL)
        return false;
    t->cost = e->cost(t->args.plan);
    return true;
}

static bool
exec_workspace(mr_plan *p, mr_task *t)
{
    const mr_op_exec *e = t->node->op->exec;
    size_t bytes = e->workspace(t->args.plan);

    mr__task_args_out(t);
    if (__builtin_expect(t->flight != NULL, 0) &&
        (t->flight->memory = mr__arena_zero(
             &p->window->arena, e->launch_bytes(t->args.plan))) == NULL)
        return false;
    if (bytes == 0)
        return true;
    t->workspace = mr__reserve_buffer(p, t, bytes);
    return t->workspace != NULL;
}

/* It was made for another device than its stream's: the host runs it in the
 * stream, another device in a stream of its own. */
static __attribute__((cold)) bool
exec_settle(mr_plan *p, mr_task *t, const mr_device_table *d)
{
    if (mr__device_has_queues(d)) {
        t->stream = mr__device_transfers(d);
        if (!mr__plan_note_stream(p, t->stream))
            return false;
    }
    return mr__reserve_settle(p, t, d);
}

/* The device's row, or the host's. */
bool
mr__reserve_kernel(mr_plan *p, mr_task *t, const mr_array *x)
{
    if (x->op->exec != NULL) {
        const mr_device_table *d = x->op->exec->device(x);

        return __builtin_expect(t->device == d, 1) || exec_settle(p, t, d);
    }
    t->kernel = mr__device_kernel(t->device, x->op->id);
    if (t->kernel != NULL)
        return true;
    if (t->space != 0) {
        if (!mr__reserve_settle(p, t, mr__device_host()))
            return false;
        t->kernel = mr__device_kernel(t->device, x->op->id);
    }
    if (t->kernel != NULL)
        return true;
    mr__fail(MR_E_UNSUPPORTED, "the device %s has no kernel for %s",
             t->device->name, x->op->name);
    return false;
}

static bool
plan_kernel(mr_plan *p, mr_fuse_group *g)
{
    mr_plan_node *n = (mr_plan_node *)g->root;
    mr_array *x = n->f.x;
    mr_task *t = mr__reserve_task(p, MR_TASK_KERNEL, x, x->n_in, x->n_out);

    if (t == NULL || !mr__reserve_kernel(p, t, x))
        return false;
    if (!mr__reserve_inputs(p, t, x) ||
        (t->kernel == NULL && !exec_plan(p, t, n)) || !place_output(p, t, n) ||
        !(t->kernel == NULL ? exec_workspace(p, t) : kernel_workspace(p, t, x)))
        return false;
    mr__plan_append(p, t);
    if (t->workspace != NULL)
        mr__reserve_again(p,
                          (mr_recycled){t->workspace, t->stream, true, NULL});
    mr__reserve_uses(p, g);
    return true;
}

/* ---- all groups
 * -------------------------------------------------------------------------- */

/* Nothing to compute: no elements. */
static bool
plan_empty(mr_plan *p, mr_fuse_group *g)
{
    mr_plan_node *n = (mr_plan_node *)g->root;
    mr_task *t = mr__reserve_task(p, MR_TASK_ALIAS, n->f.x, 0, n->f.x->n_out);

    if (t == NULL || !place_output(p, t, n))
        return false;
    t->cost = 20.0;
    mr__plan_append(p, t);
    mr__reserve_uses(p, g);
    return true;
}

mr_code
mr__plan_reserve(mr_plan *p, mr_fuse_group *groups)
{
    settle_reuse(p);
    p->at = 0;
    for (mr_fuse_group *g = groups; g != NULL; g = g->next) {
        bool ok;

        while (p->node[p->at] != g->root)
            p->at++;
        if (g->kind == MR_GROUP_VIEW)
            ok = plan_view(p, g);
        else if (g->kind == MR_GROUP_BLOCK)
            ok = g->product != NULL ? mr__reserve_joined(p, g)
                                    : mr__reserve_block(p, g);
        else if (mr__node_is_empty(g->root->x))
            ok = plan_empty(p, g);
        else
            ok = plan_kernel(p, g);
        if (!ok) {
            mr__error_annotate(g->root->x->op->name, g->root->x->site,
                               "while planning %s", g->root->x->op->name);
            return mr__error_code();
        }
    }
    return MR_OK;
}
