/* SPDX-License-Identifier: Apache-2.0
 *
 * walk.c -- which nodes a window holds.
 *
 * A depth-first walk from the roots over `new` nodes, children first, with a
 * stack of its own: a chain of a million operators needs no deep recursion.
 * It stops after a window's nodes and goes on where it stopped; nodes left
 * on the stack are looked at again then, since another evaluator may have
 * taken them meanwhile.
 *
 * Called by: eval.c, under the plan lock.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "eval/alone.h"
#include "eval/plan.h"

static mr_code
push(mr_plan *p, mr_array *x)
{
    if (p->depth == p->stack_cap) {
        size_t cap = p->stack_cap ? 2 * p->stack_cap : 64;
        mr_walk_entry *s = mr__alloc_again(p->stack, cap * sizeof *s);

        if (s == NULL)
            return MR_E_MEMORY;
        p->stack = s;
        p->stack_cap = cap;
    }
    p->stack[p->depth++] = (mr_walk_entry){x, 0};
    return MR_OK;
}

/* The root that is being walked: those below it on the stack wait. */
static const mr_array *
root_walked(const mr_plan *p, const mr_array *x)
{
    for (size_t i = 0; i < p->depth; i++)
        if (p->stack[i].child > 0)
            return p->stack[i].x;
    return p->depth > 0 ? p->stack[p->depth - 1].x : x;
}

/* Names what was asked for, not the placeholder below it. */
static mr_code
refuse_placeholder(const mr_plan *p, const mr_array *x)
{
    const mr_array *root = root_walked(p, x);
    const char *of = mr__placeholder_of(x);
    bool live = mr__trace_live(x->trace);

    mr__error_here.unread = true;
    return mr__fail(
        MR_E_STATE,
        "an array%s%s that depends on the inputs of %s%s has no value%s",
        root->site == NULL ? "" : " made at ",
        root->site == NULL ? "" : root->site,
        of == NULL ? "a traced function" : "the function traced by ",
        of == NULL ? "" : of,
        live ? " while it is traced: return it, or compute with it, and read "
               "it outside"
             : ", and the trace is over: have the function return it, and read "
               "what the call gives");
}

/* Is there something to compute for x, and may there be? */
static mr_code
look(mr_plan *p, mr_array *x, bool *walk)
{
    mr_state s = mr__alone_forbid(x);

    *walk = false;
    if (s != MR_NEW) {
        if (__builtin_expect(s == MR_FAILED, 0))
            p->met_failure = true;
        return MR_OK;
    }
    if (x->flags & MR_NODE_PLACEHOLDER)
        return refuse_placeholder(p, x);
    *walk = x->plan == NULL;
    return MR_OK;
}

/* The first input that failed, or NULL. */
static const mr_array *
input_that_failed(const mr_array *x)
{
    for (int i = 0; i < x->n_in; i++)
        if (mr__state(x->in[i]) == MR_FAILED)
            return x->in[i];
    return NULL;
}

/* x reads what failed, so it fails at once, for the same reason: others of the
 * plan do not.  Only an operator that runs itself may have results, or its one,
 * that do not depend on it. */
static __attribute__((cold)) bool
fails_at_once(mr_array *x)
{
    bool without = x->op->exec != NULL && x->op->exec->does_without;
    const mr_array *in = without ? NULL : input_that_failed(x);

    if (in == NULL)
        return false;
    mr__strides_fresh(x->ndim, x->dim, mr__strides(x));
    mr__error_release(x->error); /* of an attempt that may be repeated */
    x->error = mr__error_retain(in->error);
    /* release: pairs with the acquire of walkers; nobody waits for a new one */
    atomic_store_explicit(&x->state, MR_FAILED, memory_order_release);
    return true;
}

static bool
has_room(mr_plan *p)
{
    mr_fuse_node **more;

    if (p->n < p->cap)
        return true;
    more = mr__arena_alloc(&p->window->arena, 2 * p->cap * sizeof *more);
    if (more == NULL)
        return false;
    memcpy(more, p->node, p->n * sizeof *more);
    p->node = more;
    p->cap *= 2;
    return true;
}

/* The lowest entries have references.  That of an emitted node is kept until
 * the window is submitted: it may be the last. */
static void
pop(mr_plan *p, bool emitted)
{
    mr_array *x = p->stack[--p->depth].x;

    if (p->depth >= p->n_held)
        return;
    p->n_held = p->depth;
    if (emitted) {
        p->drop[p->n_drop++] = x;
        mr__plan_node(x)->held = true;
    } else {
        mr__release(x);
    }
}

/* Was an input given up after the walk had passed it, in an earlier window, or
 * taken since? */
static bool
inputs_are_placed(mr_plan *p, const mr_array *x)
{
    for (int i = 0; i < x->n_in; i++) {
        mr_state s;

        if (x->in[i]->plan != NULL)
            continue;
        s = mr__state(x->in[i]);
        if (s == MR_NEW || mr__alone_is_taken(x->in[i]))
            return false;
        if (__builtin_expect(s == MR_FAILED, 0))
            p->met_failure = true;
    }
    return true;
}

/* Where it will lie is not known: the caller waits for it, and plans again. */
static __attribute__((cold)) mr_code
step_back(mr_plan *p, mr_array *taken)
{
    p->taken = mr__retain(taken);
    return MR_E_CANCELLED;
}

/* All inputs of x are placed in the window or leaves: x is next. */
static mr_code
emit(mr_plan *p, mr_array *x)
{
    mr_arena *a = &p->window->arena;
    mr_plan_node *n = mr__arena_zero(a, sizeof *n);

    if (n == NULL || !has_room(p))
        return MR_E_MEMORY;
    n->f.x = x;
    n->f.in = mr__arena_alloc(a, (size_t)(x->n_in + 1) * sizeof *n->f.in);
    if (n->f.in == NULL)
        return MR_E_MEMORY;
    for (int i = 0; i < x->n_in; i++) {
        mr_plan_node *in = mr__plan_node(x->in[i]);

        n->f.in[i] = in == NULL ? NULL : &in->f;
        if (in != NULL)
            in->f.n_uses++;
    }
    p->node[p->n++] = &n->f;
    x->plan = n;
    return MR_OK;
}

static mr_code
advance(mr_plan *p)
{
    mr_walk_entry *e = &p->stack[p->depth - 1];
    mr_array *x = e->x;
    bool walk;
    mr_code rc = look(p, x, &walk);

    if (rc != MR_OK)
        return rc;
    if (!walk) {
        pop(p, false);
        return MR_OK;
    }
    while (e->child < x->n_in) {
        mr_array *in = x->in[e->child];

        e->child++;
        rc = look(p, in, &walk);
        if (rc != MR_OK)
            return rc;
        if (walk)
            return push(p, in);
        if (__builtin_expect(mr__alone_is_taken(in), 0))
            return step_back(p, in);
    }
    if (!inputs_are_placed(p, x)) {
        e->child = 0;
        return MR_OK;
    }
    if (__builtin_expect(p->met_failure, 0) && fails_at_once(x)) {
        pop(p, false);
        return MR_OK;
    }
    rc = emit(p, x);
    if (rc == MR_OK)
        pop(p, true);
    return rc;
}

/* Who else can see it?  Scopes' references do not count: what a scope alone
 * holds may be computed again.  Nor does the walker's own, or a long chain
 * would keep each of its values from the second window on. */
static void
set_visibility(mr_fuse_node *f)
{
    uint64_t total = mr__ref_total(f->x);
    uint32_t scoped = atomic_load_explicit(&f->x->scoped, memory_order_relaxed);
    mr_plan_node *n = (mr_plan_node *)f;

    f->visible =
        f->wanted || total > (uint64_t)f->n_uses + scoped + (uint64_t)n->held;
    n->reusable = !f->visible && scoped == 0 &&
                  (f->x->trace == 0 || !mr__trace_live(f->x->trace));
    n->uses_left = f->n_uses;
}

mr_code
mr__plan_walk(mr_plan *p, mr_array *const *roots, size_t n_roots, bool *more)
{
    mr_code rc = MR_OK;

    p->n = p->n_drop = 0;
    if (p->n_held > 0) {
        p->drop = mr__arena_alloc(&p->window->arena, p->most * sizeof *p->drop);
        if (p->drop == NULL)
            return MR_E_MEMORY;
    }
    p->node = p->few;
    p->cap = sizeof p->few / sizeof *p->few;
    while (rc == MR_OK && p->depth > 0 && p->n < p->most)
        rc = advance(p);
    if (rc != MR_OK)
        return rc;
    for (size_t i = 0; i < n_roots; i++)
        if (mr__state(roots[i]) == MR_NEW && roots[i]->plan != NULL)
            mr__plan_node(roots[i])->f.wanted = true;
    for (size_t i = 0; i < p->n; i++)
        set_visibility(p->node[i]);
    *more = p->depth > 0;
    return MR_OK;
}

mr_code
mr__plan_push_roots(mr_plan *p, mr_array *const *roots, size_t n_roots)
{
    /* the first root is walked first */
    for (size_t i = n_roots; i-- > 0;) {
        mr_code rc = push(p, roots[i]);

        if (rc != MR_OK)
            return rc;
    }
    return MR_OK;
}

void
mr__plan_unmark(mr_plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        p->node[i]->x->plan = NULL;
}

void
mr__plan_hold(mr_plan *p)
{
    for (; p->n_held < p->depth; p->n_held++)
        mr__retain(p->stack[p->n_held].x);
}

void
mr__plan_drop_held(mr_plan *p)
{
    for (size_t i = 0; i < p->n_drop; i++)
        mr__release(p->drop[i]);
    p->n_drop = 0;
}

void
mr__plan_drop_stack(mr_plan *p)
{
    for (size_t i = 0; i < p->n_held; i++)
        mr__release(p->stack[i].x);
    p->n_held = p->depth = 0;
}
