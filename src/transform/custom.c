/* SPDX-License-Identifier: Apache-2.0
 *
 * custom.c -- custom_function and checkpoint: the closures, and what a call of
 * one leaves in the graph.
 *
 * Outside of every trace a call is a call of the function.  Inside one the
 * function runs on identities of its arguments, so that what it captures is
 * told from them even when both are one array; custom.h says what is made.
 * Captured arrays are inputs of the call beside its arguments: rules are asked
 * for them as for any input, so none can be forgotten.
 *
 * Called by: users, the bindings.  Calls: capture.c, graph/.
 */
#include "transform/custom.h"

#include <string.h>

#include "array/buffer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/sized.h"
#include "graph/tree.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/tree.h"
#include "transform/call.h"
#include "transform/traced.h"

/* ---- rules and calls as objects -------------------------------------------
 */

void
mr__custom_retain(mr_custom *to, const mr_custom *from)
{
    *to = *from;
    mr_closure_retain(to->f);
    mr_closure_retain(to->vjp);
    mr_closure_retain(to->jvp);
    mr_closure_retain(to->vmap);
}

void
mr__custom_release(mr_custom *c)
{
    mr_closure_release(c->f);
    mr_closure_release(c->vjp);
    mr_closure_release(c->jvp);
    mr_closure_release(c->vmap);
}

void
mr__call_free(mr_custom_call *c)
{
    if (!c)
        return;
    for (int i = 0; c->captured && i < c->n_captured; i++)
        mr__release(c->captured[i]);
    mr__dealloc(c->captured);
    mr__dealloc(c->batched);
    mr__release(c->entry);
    mr__tree_release(c->in);
    mr__tree_release(c->out);
    mr__custom_release(&c->rules);
    mr__dealloc(c);
}

static void
holder_free(void *ctx, void *data)
{
    (void)ctx;
    mr__call_free(data);
}

const mr_custom_call *
mr__call_of(const mr_array *holder)
{
    return holder->buffer->data;
}

mr_array *
mr__call_holder(mr_custom_call *c)
{
    static const int64_t bytes = (int64_t)sizeof *c;
    mr_buffer *b = c ? mr__buffer_wrap(c, sizeof *c, holder_free, NULL) : NULL;

    if (!b) {
        mr__call_free(c);
        return NULL;
    }
    b->read_only = true;
    return mr__node_data(MR_UINT8, 1, &bytes, NULL, b, 0);
}

mr_array *
mr__call_node(mr_array *holder, const mr_custom_call *c, mr_array *const *in)
{
    int n = c->n_args + c->n_captured + c->n_out;
    mr_array **all = mr__alloc_array((size_t)n + 1, sizeof *all), *x;
    mr_call_params p = {c->n_args, c->n_captured, c->n_out};

    if (!all)
        return NULL;
    all[0] = holder;
    if (n > 0)
        memcpy(all + 1, in, (size_t)n * sizeof *all);
    x = mr__node_tuple(&mr__op_call, &p, n + 1, all, c->n_out);
    mr__dealloc(all);
    return x;
}

/* The structure of a tree, over one number in place of its arrays. */
static mr_tree *
structure_of(const mr_tree *t)
{
    int n = mr_tree_n_leaves(t);
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    mr_array *one = mr_int(0);
    mr_tree *s = NULL;

    for (int i = 0; leaf && i < n; i++)
        leaf[i] = one;
    if (leaf && one)
        s = mr__tree_like(t, leaf, n);
    mr__dealloc(leaf);
    return s;
}

/* ---- a call ----------------------------------------------------------------
 */

typedef struct calling {
    const mr_custom *c;
    mr_leaves x; /* the arguments */
    mr_array **arg;
    mr_capture capture;
    mr_tree *out;
    mr_leaves y;
    mr_vec found;
} calling;

static bool
is_traced(const mr_leaves *x)
{
    if (mr__ctx.trace_depth > 0)
        return true;
    for (int i = 0; i < x->n; i++)
        if (mr__trace_live(x->v[i]->trace))
            return true;
    return false;
}

/* Run the function on identities of its arguments, and see what it found. */
static mr_code
run_function(calling *k, const mr_tree *in)
{
    const mr_callee f = mr__closure_callee(k->c->f);
    mr_tree *args;
    mr_code code;

    k->arg = mr__alloc_array((size_t)k->x.n + 1, sizeof *k->arg);
    for (int i = 0; k->arg && i < k->x.n; i++) {
        k->arg[i] = mr__node_tracer(k->x.v[i], 0);
        if (!k->arg[i])
            return mr__error_code();
    }
    args = k->arg ? mr_tree_like(in, k->arg, k->x.n) : NULL;
    if (!args)
        return mr__error_code();
    mr__capture_begin(&k->capture, k->c->checkpoint);
    k->out = mr__callee_call(&f, args);
    code = mr__capture_end(&k->capture);
    if (!k->out || code != MR_OK)
        return mr__error_code();
    code = mr__leaves_of(&k->y, k->out, "the result");
    if (code == MR_OK)
        code = mr__capture_find(&k->capture, k->arg, k->x.n, k->y.v, k->y.n,
                                &k->found);
    return code;
}

/* Keys stand last; one that was found by itself stands there alone. */
static bool
add_keys(calling *k)
{
    for (size_t i = 0; i < k->capture.drawn.n; i++) {
        void *key = k->capture.drawn.v[i];

        for (size_t j = 0; j < k->found.n; j++)
            if (k->found.v[j] == key) {
                memmove(k->found.v + j, k->found.v + j + 1,
                        (--k->found.n - j) * sizeof *k->found.v);
                break;
            }
    }
    for (size_t i = 0; i < k->capture.drawn.n; i++)
        if (!mr__vec_push(&k->found, k->capture.drawn.v[i]))
            return false;
    return true;
}

static mr_custom_call *
call_new(calling *k, const mr_tree *in)
{
    mr_custom_call *c = mr__alloc_zero(sizeof *c);
    size_t n;

    if (!c || !add_keys(k)) {
        mr__dealloc(c);
        return NULL;
    }
    n = k->found.n;
    mr__custom_retain(&c->rules, k->c);
    c->n_args = k->x.n;
    c->n_out = k->y.n;
    c->n_keys = (int)k->capture.drawn.n;
    c->captured = mr__alloc_array(n + 1, sizeof *c->captured);
    c->in = structure_of(in);
    c->out = structure_of(k->out);
    if (!c->captured || !c->in || !c->out) {
        mr__call_free(c);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        c->captured[i] = mr__retain(k->found.v[i]);
    c->n_captured = (int)n;
    return c;
}

/* The inputs of the node behind its holder. */
static mr_array **
call_inputs(const calling *k)
{
    size_t n_args = (size_t)k->x.n, n_found = k->found.n;
    mr_array **in = mr__alloc_array(n_args + n_found + (size_t)k->y.n + 1,
                                    sizeof(mr_array *));

    if (!in)
        return NULL;
    for (size_t i = 0; i < n_args; i++)
        in[i] = k->arg[i];
    for (size_t i = 0; i < n_found; i++)
        in[n_args + i] = k->found.v[i];
    for (int i = 0; i < k->y.n; i++)
        in[n_args + n_found + (size_t)i] = k->y.v[i];
    return in;
}

/* The results as the function gave them, each a view of its value. */
static mr_tree *
results_of(const calling *k, mr_array *node)
{
    mr_array **y = mr__alloc_array((size_t)k->y.n + 1, sizeof *y);
    mr_tree *t = NULL;
    bool ok = y != NULL;

    for (int i = 0; ok && i < k->y.n; i++) {
        y[i] = mr__node_output(node, i);
        ok = y[i] != NULL;
    }
    if (ok)
        t = mr_tree_like(k->out, y, k->y.n);
    mr__dealloc(y);
    return t;
}

static mr_tree *
call_traced(calling *k, const mr_tree *in)
{
    mr_custom_call *c;
    mr_array *holder, *node = NULL, **inputs;

    if (run_function(k, in) != MR_OK)
        return NULL;
    c = call_new(k, in);
    holder = c ? mr__call_holder(c) : NULL;
    inputs = holder ? call_inputs(k) : NULL;
    if (inputs)
        node = mr__call_node(holder, c, inputs);
    mr__dealloc(inputs);
    return node ? results_of(k, node) : NULL;
}

/* The closure's function. */
static mr_tree *
custom_call(void *ctx, const mr_tree *in)
{
    calling k = {.c = ctx};
    mr_tree *out = NULL;

    if (mr__leaves_of(&k.x, in, "the arguments") == MR_OK)
        out =
            is_traced(&k.x) ? call_traced(&k, in) : mr_closure_call(k.c->f, in);
    mr__capture_free(&k.capture);
    mr__vec_free(&k.found);
    mr__leaves_free(&k.x);
    mr__leaves_free(&k.y);
    mr__dealloc(k.arg);
    mr_tree_release(k.out);
    return out;
}

/* ---- the public functions --------------------------------------------------
 */

static void
custom_destroy(void *ctx)
{
    mr__custom_release(ctx);
    mr__dealloc(ctx);
}

static mr_closure *
closure_of(const mr_custom *rules)
{
    mr_custom *c = mr__alloc(sizeof *c);

    if (!c)
        return NULL;
    mr__custom_retain(c, rules);
    return mr_closure_new(custom_call, c, custom_destroy);
}

static bool
function_given(const mr_closure *f)
{
    if (!f && !mr__error_pending())
        mr__fail(MR_E_NULL, "the closure is NULL");
    return f != NULL;
}

mr_closure *
mr_custom_function(mr_closure *f, const mr_custom_options *options)
{
    mr_custom_options o = {.size = sizeof o};

    if (!function_given(f))
        return NULL;
    if (options &&
        mr__sized_take(&o, sizeof o, options, "mr_custom_options") != MR_OK)
        return NULL;
    return closure_of(&(mr_custom){
        .f = f, .vjp = o.vjp, .jvp = o.jvp, .vmap = o.vmap, .name = o.name});
}

mr_closure *
mr_checkpoint(mr_closure *f)
{
    if (!function_given(f))
        return NULL;
    return closure_of(&(mr_custom){.checkpoint = true, .f = f});
}
