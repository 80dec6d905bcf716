/* SPDX-License-Identifier: Apache-2.0
 *
 * walk.c -- finding what depends on a trace's tracers.
 *
 * One depth-first walk from the outputs, with a stack of its own, gives the
 * dependent nodes in an order where inputs stand before their users.  A walk
 * ends at the tracers that it was given (those of an outer trace are nodes as
 * any others: the walk of the outer transform ends there), at nodes whose
 * trace flag says that they cannot depend on them, and at nodes already met.
 *
 * The trace flag of a node is the oldest live trace that it depended on when
 * it was made, and traces are numbered in the order in which they begin.  So
 * what depends on trace t has a flag between 1 and t, of a live trace; such
 * nodes keep their inputs, evaluated or not, which is why reading them here
 * takes no lock.
 *
 * Called by: grad.c, vjp.c, jvp.c, vmap.c.  Calls: graph/, base/.
 */
#include "transform/walk.h"

#include <assert.h>

#include "array/dtype.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "graph/context.h"
#include "marram/scope.h"

/* The map holds SEEN for a node that is not (yet known to be) dependent, else
 * its number + FIRST_NUMBER. */
enum { SEEN = 1, FIRST_NUMBER = 2 };

typedef struct visit {
    mr_node *node;
    uint32_t next, end; /* edges to look at */
    bool depends;
} visit;

typedef struct visit_stack {
    visit *at;
    size_t n, cap;
} visit_stack;

/* Nothing flows through x in either direction of differentiation. */
static bool
is_flat(const mr_node *x)
{
    return (x->op->flags & MR_FLAG_ZERO_GRADIENT) ||
           (!(x->flags & MR_NODE_TUPLE) &&
            !mr__dtype_is_inexact((mr_dtype)x->dtype));
}

/* The edges that a walk of this kind follows: a projection's tuple, what an
 * operator does not hide, else all inputs. */
static visit
visit_of(mr_node *x, mr_rule_kind kind)
{
    visit v = {.node = x, .end = x->n_in};

    if (x->flags & MR_NODE_SHADOW) {
        v.next = x->n_in;
        v.end = v.next + 1;
    } else if (kind != MR_RULE_VMAP && is_flat(x)) {
        v.end = 0;
    } else if (x->op->follows) {
        v.end = (uint32_t)x->op->follows(x, kind);
    }
    return v;
}

static bool
stack_push(visit_stack *s, visit v)
{
    if (s->n == s->cap) {
        size_t cap = s->cap > 0 ? s->cap * 2 : 64;
        visit *at = mr__alloc_again(s->at, cap * sizeof *at);

        if (!at)
            return false;
        s->at = at;
        s->cap = cap;
    }
    s->at[s->n++] = v;
    return true;
}

static void *
number_to_mark(size_t i)
{
    return (void *)(uintptr_t)(i + FIRST_NUMBER);
}

static bool
may_depend(mr_walk *w, const mr_node *x)
{
    if (!x || x->trace == 0 || x->trace > w->trace)
        return false;
    if (x->trace == w->trace || x->trace == w->live_trace)
        return true;
    if (!mr__trace_live(x->trace))
        return false;
    w->live_trace = x->trace;
    return true;
}

/* Another name of an array (a tape gives one to what a front door handed
 * back, mx.array to its argument) has no place of its own: sums of cotangents
 * are taken in the same order with and without it.  A transform's tracers
 * are none, and only inputs of live traces stay. */
static mr_node *
named(mr_node *x)
{
    while (x != NULL && x->op == &mr__op_tracer &&
           !(x->flags & MR_NODE_TRACER) && x->trace != 0 &&
           mr__trace_live(x->trace) && x->n_in == 1)
        x = x->in[0];
    return x;
}

static bool
append(mr_walk *w, mr_node *x)
{
    if (w->n == w->cap) {
        size_t cap = w->cap > 0 ? w->cap * 2 : 64;
        mr_node **node = mr__alloc_again(w->node, cap * sizeof(mr_node *));

        if (!node)
            return false;
        w->node = node;
        w->cap = cap;
    }
    if (!mr__map_put(&w->index, x, number_to_mark(w->n)))
        return false;
    w->node[w->n++] = mr__retain(x);
    return true;
}

/* Push x if it was not met before; *depends is set when it is known to. */
static bool
meet(mr_walk *w, visit_stack *s, mr_node *x, bool *depends)
{
    void **mark;

    x = named(x);
    if (!may_depend(w, x))
        return true;
    mark = mr__map_at(&w->index, x);
    if (!mark)
        return false;
    if (*mark) {
        if ((uintptr_t)*mark >= FIRST_NUMBER)
            *depends = true;
        return true;
    }
    *mark = (void *)(uintptr_t)SEEN;
    return stack_push(s, visit_of(x, w->kind));
}

static bool
visit_all(mr_walk *w, visit_stack *s)
{
    while (s->n > 0) {
        visit *v = &s->at[s->n - 1];

        if (v->next < v->end) {
            mr_node *in = v->node->in[v->next++];
            bool depends = false;

            if (!meet(w, s, in, &depends))
                return false;
            /* The stack may have moved. */
            if (depends)
                v->depends = true;
            continue;
        }
        s->n--;
        if (!v->depends)
            continue;
        if (!append(w, v->node))
            return false;
        if (s->n > 0)
            s->at[s->n - 1].depends = true;
    }
    return true;
}

int
mr__output_index(const mr_node *x)
{
    return (int)((const mr_output_params *)mr__params(x))->index;
}

/* A node of one result is its own; a projection also stands for its tuple's
 * result. */
static bool
make_places(mr_walk *w)
{
    size_t places = 0;

    w->first = mr__alloc_array(w->n + 1, sizeof *w->first);
    if (!w->first)
        return false;
    for (size_t i = 0; i < w->n; i++) {
        w->first[i] = places;
        places += w->node[i]->n_out;
    }
    w->first[w->n] = places;
    w->value = mr__alloc_zero((places + 1) * sizeof *w->value);
    w->output = mr__alloc_zero((places + 1) * sizeof *w->output);
    if (!w->value || !w->output)
        return false;
    for (size_t i = 0; i < w->n; i++) {
        mr_node *x = w->node[i];
        size_t tuple;
        mr_array **at;

        if (!(x->flags & MR_NODE_TUPLE))
            w->output[w->first[i]] = x;
        if (!mr__is_output(x))
            continue;
        tuple = mr__walk_find(w, mr__output_tuple(x));
        if (tuple == MR_WALK_NONE)
            continue;
        at = &w->output[w->first[tuple] + (size_t)mr__output_index(x)];
        if (!*at)
            *at = x;
    }
    return true;
}

mr_code
mr__walk_open(mr_walk *w, mr_rule_kind kind, uint64_t trace,
              mr_array *const *tracer, size_t n_tracers, mr_array *const *out,
              size_t n_out)
{
    visit_stack s = {0};
    bool ok = true, depends = false;

    w->kind = kind;
    w->trace = trace;
    for (size_t i = 0; ok && i < n_tracers; i++)
        ok = append(w, tracer[i]);
    for (size_t i = 0; ok && i < n_out; i++)
        ok = meet(w, &s, out[i], &depends) && visit_all(w, &s);
    mr__dealloc(s.at);
    return ok && make_places(w) ? MR_OK : MR_E_MEMORY;
}

size_t
mr__walk_find(const mr_walk *w, const mr_node *x)
{
    uintptr_t mark;

    if (x->op == &mr__op_tracer)
        x = named((mr_node *)(uintptr_t)x);
    mark = (uintptr_t)mr__map_get(&w->index, x);
    return mark < FIRST_NUMBER ? MR_WALK_NONE : mark - FIRST_NUMBER;
}

mr_array *
mr__walk_value(const mr_walk *w, const mr_node *x)
{
    size_t i = mr__walk_find(w, x);

    return i == MR_WALK_NONE ? NULL : w->value[w->first[i]];
}

mr_array *const *
mr__walk_outputs(mr_walk *w, size_t i)
{
    mr_node *x = w->node[i];
    mr_array **out = w->output + w->first[i];

    for (int k = 0; k < x->n_out; k++) {
        if (out[k])
            continue;
        mr_array *y = mr__node_output(x, k);

        if (!y || !mr__vec_push(&w->made, y))
            return NULL;
        out[k] = mr__retain(y);
    }
    return out;
}

/* Only what this trace alone kept: a node of an outer trace is its sweep's. */
void
mr__walk_sweep(mr_walk *w)
{
    mr_vec done = {0};

    if (!mr__graph_detach_hook)
        return;
    for (size_t i = 0; i < w->n; i++) {
        mr_node *x = w->node[i];

        if (x->trace == w->trace && x->n_in > 0 && mr__state(x) == MR_DONE &&
            !mr__vec_push(&done, x))
            break; /* no memory: the rest goes with its last reference */
    }
    if (done.n > 0)
        mr__graph_detach_hook((mr_node *const *)done.v, done.n);
    mr__vec_free(&done);
}

void
mr__walk_close(mr_walk *w)
{
    size_t places = w->value ? w->first[w->n] : 0;

    for (size_t i = 0; i < places; i++)
        mr__release(w->value[i]);
    for (size_t i = 0; i < w->made.n; i++)
        mr__release(w->made.v[i]);
    /* From the end: users before inputs, so that each release is short. */
    for (size_t i = w->n; i-- > 0;)
        mr__release(w->node[i]);
    mr__vec_free(&w->made);
    mr__dealloc(w->value);
    mr__dealloc(w->output);
    mr__dealloc(w->first);
    mr__dealloc(w->node);
    mr__map_free(&w->index);
    *w = (mr_walk){0};
}
