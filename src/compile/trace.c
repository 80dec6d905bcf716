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
#include "graph/context.h"
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

/* Sort the results' leaves: arguments as they came, what the program makes,
 * arrays from elsewhere. */
static bool
sort_leaves(mr_cache_entry *e, const tracing *t, mr_array *const *leaf,
            mr_vec *outs)
{
    for (int i = 0; i < e->n_leaves; i++) {
        mr_array *x = leaf[i];
        int at = find_array((mr_array *const *)t->args.v, t->args.n, x);

        if (at >= 0) {
            e->leaf[i] = (mr_leaf){MR_LEAF_ARG, at, NULL};
            continue;
        }
        if (x->trace != t->trace || mr__state(x) != MR_NEW) {
            e->leaf[i] = (mr_leaf){MR_LEAF_CAPTURED, 0, mr__retain(x)};
            continue;
        }
        at = find_array((mr_array *const *)outs->v, outs->n, x);
        if (at < 0) {
            at = (int)outs->n;
            if (!mr__vec_push(outs, x))
                return false;
        }
        e->leaf[i] = (mr_leaf){MR_LEAF_OUTPUT, at, NULL};
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
    mr_vec outs = {0};
    bool ok = leaf != NULL && mr_tree_leaves(out, leaf, n) == MR_OK &&
              sort_leaves(e, t, leaf, &outs);

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
              (made == NULL ||
               mr__captured_judge(f->name, f->captures, &c->captured) == MR_OK);

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
