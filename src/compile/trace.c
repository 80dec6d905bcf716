/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c -- from a call to a program: the function is run on placeholders, or
 * the tape of an earlier trace is played over them.
 *
 * Nothing is locked meanwhile.  Random operators get a placeholder for each
 * key, which a call fills; arrays that the function found elsewhere are kept
 * as constants, and judged as the function's options want.
 *
 * Called by: function.c.  Calls: program.c, captured.c, graph/tape.c.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"
#include "compile/call.h"
#include "compile/captured.h"
#include "compile/program.h"
#include "eval/check.h"
#include "eval/registry.h"
#include "graph/context.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/scope.h"
#include "marram/tree.h"

/* ---- tracing
 * ------------------------------------------------------------------------ */

typedef struct tracing {
    mr_key_source source; /* first: keys drawn inside */
    uint64_t trace;
    mr_vec args; /* placeholders: the arguments, then the keys; retained */
} tracing;

static mr_array *
placeholder(tracing *t, mr_dtype dtype, int32_t ndim, const int64_t *dim)
{
    mr_array *x = mr__node_placeholder(dtype, ndim, dim, t->trace);

    if (x == NULL || !mr__vec_push(&t->args, x))
        return NULL;
    mr__retain(x);
    return x;
}

static mr_array *
next_key(mr_key_source *s)
{
    return placeholder((tracing *)s, MR_UINT32, 1, (int64_t[]){2});
}

static void
tracing_end(tracing *t)
{
    for (size_t i = 0; i < t->args.n; i++)
        mr__release(t->args.v[i]);
    mr__vec_free(&t->args);
}

/* The thread's state while the function runs. */
typedef struct tracing_frame {
    mr_key_source *keys;
    const char *no_eval;
} tracing_frame;

static tracing_frame
frame_enter(tracing *t, const char *name)
{
    tracing_frame old = {mr__ctx.keys, mr__ctx.no_eval};

    mr__ctx.no_eval = name; /* placeholders remember it */
    mr__ctx.keys = &t->source;
    return old;
}

static void
frame_leave(tracing_frame old)
{
    mr__ctx.keys = old.keys;
    mr__ctx.no_eval = old.no_eval;
}

static bool
placeholders(tracing *t, const mr_call_state *c)
{
    for (int i = 0; i < c->n_leaves; i++)
        if (placeholder(t, (mr_dtype)c->leaf[i]->dtype, c->leaf[i]->ndim,
                        c->leaf[i]->dim) == NULL)
            return false;
    return true;
}

/* The results become the tape's. */
static bool
close_tape(mr_tape *tape, const mr_tree *out)
{
    int n = out == NULL ? 0 : mr_tree_n_leaves(out);
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    bool ok = leaf != NULL && (n == 0 || mr_tree_leaves(out, leaf, n) == MR_OK);

    if (ok)
        ok = mr__tape_close(tape, leaf, n);
    else
        mr__ctx.tape = NULL;
    mr__dealloc(leaf);
    return ok;
}

/* Run the function on placeholders; the result belongs to the open scope.
 * tape: NULL, or where the trace is recorded. */
static mr_tree *
trace(tracing *t, mr_call_state *c, const char *name, mr_tape *tape)
{
    const mr_tree *like = mr__call_tree(c);
    mr_tree *in = NULL, *out = NULL;
    tracing_frame old = frame_enter(t, name);

    if (like != NULL && placeholders(t, c))
        in = mr_tree_like(like, (mr_array *const *)t->args.v, c->n_leaves);
    if (in != NULL &&
        (tape == NULL ||
         mr__tape_open(tape, (mr_array *const *)t->args.v, c->n_leaves))) {
        out = mr__call_function(c, in);
        if (tape != NULL && !close_tape(tape, out))
            out = NULL;
    }
    frame_leave(old);
    return out;
}

/* The same results by playing a tape; NULL, with *failed false and no error:
 * it does not hold for these shapes. */
static mr_tree *
play(tracing *t, mr_call_state *c, const char *name, const mr_cache_entry *with,
     bool *failed)
{
    int n = with->n_leaves;
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    tracing_frame old = frame_enter(t, name);
    bool fits = true, ok;
    mr_tree *out = NULL;

    ok = leaf != NULL && placeholders(t, c) &&
         mr__tape_play(with->tape, (mr_array *const *)t->args.v, c->n_leaves,
                       leaf, n, &fits);
    if (ok)
        out = mr_tree_like(with->shape, leaf, n);
    frame_leave(old);
    mr__dealloc(leaf);
    c->tag = with->tag;
    /* the function itself says what is wrong at these shapes */
    *failed = ok || mr__error_code() == MR_E_MEMORY;
    if (!*failed)
        mr_error_take();
    return out;
}

/* ---- from a trace to an entry
 * ------------------------------------------------------------ */

static int
find_array(mr_array *const *list, size_t n, const mr_array *x)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == x)
            return (int)i;
    return -1;
}

/* ---- results that are views ------------------------------------------------
 */

/* Views between a result and what it looks at. */
#define VIEWS 8
/* A smaller result is copied: the copy costs less than planning a view. */
#define VIEW_BYTES (64 * 1024)

static bool
is_made(const tracing *t, const mr_array *x)
{
    return x->trace == t->trace && mr__state(x) == MR_NEW &&
           !(x->flags & MR_NODE_PLACEHOLDER);
}

/* The views from x down to something that the trace made, or found; how many,
 * or 0 where x is better copied: it is small, or less than half of what would
 * be kept for it, or its layout is none over what it looks at. */
static int
views_of(const tracing *t, mr_array *x, mr_array **view, mr_array **base)
{
    int64_t size = x->size * mr__dtype_size((mr_dtype)x->dtype);
    mr_layout a, b;
    int n = 0;

    while (is_made(t, x) && x->op->fuse.kind == MR_FUSE_VIEW && x->n_in == 1 &&
           x->op->view != NULL) {
        if (n == VIEWS)
            return 0;
        view[n++] = x;
        x = x->in[0];
    }
    *base = x;
    if (n == 0 || (x->flags & (MR_NODE_PLACEHOLDER | MR_NODE_TUPLE)) ||
        size < VIEW_BYTES ||
        x->size * mr__dtype_size((mr_dtype)x->dtype) > 2 * size)
        return 0;
    a.ndim = x->ndim;
    a.offset = 0;
    memcpy(a.dim, x->dim, (size_t)x->ndim * sizeof *a.dim);
    mr__strides_fresh(x->ndim, x->dim, a.stride);
    for (int k = n - 1; k >= 0; k--, a = b)
        if (!view[k]->op->view(view[k], &a, &b))
            return 0;
    return n;
}

/* The same views of a stand-in, so that nothing of the trace is kept. */
static mr_array *
views_alone(mr_array *const *view, int n, const mr_array *base)
{
    mr_array *x =
        mr__node_placeholder((mr_dtype)base->dtype, base->ndim, base->dim, 0);

    while (x != NULL && n-- > 0)
        x = mr__node_like(view[n], &x);
    return x;
}

static bool
add_output(mr_vec *outs, mr_array *x, int *at)
{
    *at = find_array((mr_array *const *)outs->v, outs->n, x);
    if (*at >= 0)
        return true;
    *at = (int)outs->n;
    return mr__vec_push(outs, x);
}

/* A result that the trace made. */
static bool
sort_made(mr_leaf *leaf, const tracing *t, mr_array *x, bool views,
          mr_vec *outs)
{
    mr_array *view[VIEWS], *base;
    int n = views ? views_of(t, x, view, &base) : 0, at;

    if (n > 0 && !is_made(t, base)) {
        *leaf = (mr_leaf){MR_LEAF_CAPTURED, 0, mr__retain(x)};
        return true;
    }
    if (!add_output(outs, n > 0 ? base : x, &at))
        return false;
    *leaf = (mr_leaf){MR_LEAF_OUTPUT, at, NULL};
    if (n == 0)
        return true;
    x = views_alone(view, n, base);
    if (x != NULL)
        *leaf = (mr_leaf){MR_LEAF_VIEW, at, mr__retain(x)};
    return x != NULL;
}

/* Sort the results' leaves: arguments as they came, what the program makes,
 * arrays from elsewhere; views: some may be looked at in others. */
static bool
sort_leaves(mr_cache_entry *e, const tracing *t, mr_array *const *leaf,
            bool views, mr_vec *outs)
{
    for (int i = 0; i < e->n_leaves; i++) {
        mr_array *x = leaf[i];
        int at = find_array((mr_array *const *)t->args.v, t->args.n, x);
        int same = find_array(leaf, (size_t)i, x);

        if (at >= 0) {
            e->leaf[i] = (mr_leaf){MR_LEAF_ARG, at, NULL};
        } else if (same >= 0) {
            e->leaf[i] = e->leaf[same];
            if (e->leaf[i].array != NULL)
                mr__retain(e->leaf[i].array);
        } else if (x->trace != t->trace || mr__state(x) != MR_NEW) {
            e->leaf[i] = (mr_leaf){MR_LEAF_CAPTURED, 0, mr__retain(x)};
        } else if (!sort_made(&e->leaf[i], t, x, views, outs)) {
            return false;
        }
    }
    return true;
}

/* The structure over one small stand-in, so that no tracer outlives its
 * trace. */
static mr_tree *
shape_of(const mr_tree *out, int n)
{
    mr_array *stand_in = mr_bool(false);
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    mr_tree *shape = NULL;

    for (int i = 0; leaf != NULL && i < n; i++)
        leaf[i] = stand_in;
    if (leaf != NULL && stand_in != NULL)
        shape = mr_tree_retain(mr_tree_like(out, leaf, n));
    mr__dealloc(leaf);
    return shape;
}

mr_cache_entry *
mr__entry_new(const mr_function *f, const mr_cache_key *key, int n_leaves)
{
    mr_cache_entry *e = mr__alloc_zero(sizeof *e);
    void *bytes;

    if (e == NULL)
        return NULL;
    atomic_init(&e->refs, 1);
    e->owner = mr__cache_owner_retain(f->owner);
    bytes = mr__alloc(key->n_bytes + 1);
    e->key = *key;
    e->key.bytes = bytes;
    e->leaf = mr__alloc_zero(((size_t)n_leaves + 1) * sizeof *e->leaf);
    if (bytes == NULL || e->leaf == NULL) {
        mr__cache_release(e);
        return NULL;
    }
    memcpy(bytes, key->bytes, key->n_bytes);
    e->n_leaves = n_leaves;
    return e;
}

static bool
fill_entry(mr_cache_entry *e, const tracing *t, const mr_tree *out,
           const mr_call_state *c)
{
    int n = e->n_leaves;
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    bool views = c->device == NULL || !mr__device_has_queues(c->device);
    mr_vec outs = {0};
    bool ok = leaf != NULL && mr_tree_leaves(out, leaf, n) == MR_OK &&
              sort_leaves(e, t, leaf, views, &outs);

    e->n_args = (int)t->args.n;
    e->n_keys = e->n_args - c->n_leaves;
    e->bytes = sizeof *e + e->key.n_bytes;
    if (ok && outs.n > 0) {
        mr_array *holder = mr__program_new(
            c->device, (mr_array *const *)t->args.v, (int)t->args.n,
            (mr_array *const *)outs.v, (int)outs.n);

        ok = holder != NULL;
        if (ok) {
            e->holder = mr__retain(holder); /* the scope has the other */
            e->bytes += mr__program_bytes(mr__program_of(holder));
        }
    }
    if (ok) {
        e->shape = shape_of(out, n);
        ok = e->shape != NULL;
    }
    mr__vec_free(&outs);
    mr__dealloc(leaf);
    return ok;
}

/* What the results lead to and was not made by the trace: judged, with made,
 * or only noted. */
static bool
find_captured(const mr_function *f, const tracing *t, mr_call_state *c,
              const mr_made *made, const mr_tree *out)
{
    int n = mr_tree_n_leaves(out);
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    bool ok = leaf != NULL && mr_tree_leaves(out, leaf, n) == MR_OK &&
              mr__captured_find(made, t->trace, leaf, n, &c->captured) &&
              (made == NULL || mr__captured_judge(f, &c->captured) == MR_OK);

    mr__dealloc(leaf);
    return ok;
}

static mr_tree *
traced(tracing *t, mr_call_state *c, mr_making *how)
{
    bool judge = how->f->captures != MR_CAPTURE_CONSTANT || mr__checking();
    mr_made made = {0};
    mr_tree *out;

    if (how->with != NULL)
        return play(t, c, how->f->name, how->with, &how->failed);
    c->traced = true;
    if (judge)
        mr__captured_begin(&made);
    out = trace(t, c, how->f->name, how->tape);
    if (judge)
        mr__captured_end(&made);
    if (out != NULL && (judge || c->fn != NULL) &&
        !find_captured(how->f, t, c, judge ? &made : NULL, out))
        out = NULL;
    mr__map_free(&made.node);
    return out;
}

mr_cache_entry *
mr__entry_make(mr_call_state *c, const mr_cache_key *key, mr_making *how)
{
    tracing t = {.source = {next_key}, .trace = mr__trace_begin()};
    mr_scope scope = mr_scope_begin();
    mr_cache_entry *e = NULL;
    mr_tree *out;

    out = t.trace == 0 || scope.token == 0 ? NULL : traced(&t, c, how);
    mr__trace_end(t.trace);
    if (out != NULL)
        e = mr__entry_new(how->f, key, mr_tree_n_leaves(out));
    if (e != NULL) {
        e->tag = c->tag;
        e->played = how->with != NULL;
    }
    if (e != NULL && !fill_entry(e, &t, out, c)) {
        mr__cache_release(e);
        e = NULL;
    }
    tracing_end(&t);
    if (scope.token != 0)
        mr_scope_end(scope);
    return e;
}
