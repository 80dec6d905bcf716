/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c -- the backward pass of a function whose inside is not kept.
 *
 * The cotangents are those of the function run a second time.  It is made a
 * function of its captured arrays too: after it ran again, what it made of
 * them is made of those that are given (mr__capture_replace), so gradients
 * reach them, and vjp and vmap take it as any other function.  The second run
 * reads its inputs through mr__depends on the cotangents: nothing of it can be
 * merged with the first run, and nothing of it runs, or takes memory, before
 * the backward pass has come to it.
 *
 * Called by: custom_rules.c.  Calls: vjp, vmap, capture.c.
 */
#include "transform/custom.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "marram/scope.h"
#include "marram/tree.h"
#include "transform/call.h"
#include "transform/traced.h"
#include "transform/walk.h"

static mr_tree *again(void *ctx, const mr_tree *in);

/* Over a batch: the function of one entry, mapped. */
static mr_tree *
again_batched(const mr_custom_call *c, const mr_tree *in)
{
    int n = c->n_args + c->n_captured;
    const mr_callee entry = {again, (void *)(uintptr_t)mr__call_of(c->entry),
                             false};
    int32_t *axis = mr__alloc_array((size_t)n + 1, sizeof *axis);
    mr_tree *t;

    if (!axis)
        return NULL;
    for (int i = 0; i < n; i++)
        axis[i] = c->batched[i] ? 0 : MR_VMAP_NONE;
    t = mr__vmap(&entry, in, axis, n, NULL, 0);
    mr__dealloc(axis);
    return t;
}

static mr_code
check_found(const mr_custom_call *c, const mr_vec *found)
{
    for (size_t i = 0; i < found->n; i++) {
        int j = 0;

        while (j < c->n_captured && c->captured[j] != found->v[i])
            j++;
        if (j == c->n_captured)
            return mr__fail(
                MR_E_STATE,
                "a function under checkpoint ran again for the backward pass "
                "and used another array (%s, made at %s) than the first time: "
                "it must do the same each time",
                ((mr_array *)found->v[i])->op->name,
                ((mr_array *)found->v[i])->site
                    ? ((mr_array *)found->v[i])->site
                    : "an unknown line");
    }
    return MR_OK;
}

/* x: arguments, then the captured arrays of this run. */
static mr_tree *
run_again(const mr_custom_call *c, mr_array *const *x, mr_capture *k)
{
    const mr_callee f = mr__closure_callee(c->rules.f);
    mr_tree *args = mr_tree_like(c->in, x, c->n_args), *out, *t = NULL;
    mr_leaves y = {0};
    mr_vec found = {0};
    int n_found = c->n_captured - c->n_keys;
    mr_code code;

    if (!args)
        return NULL;
    mr__capture_play(k, c->captured + n_found, c->n_keys);
    out = mr__callee_call(&f, args);
    code = mr__capture_end(k);
    if (!out || code != MR_OK) {
        mr_tree_release(out);
        return NULL;
    }
    if (!mr_tree_same_structure(out, c->out))
        code = mr__fail(MR_E_STATE,
                        "a function under checkpoint gave another structure "
                        "when it ran again for the backward pass: it must do "
                        "the same each time");
    if (code == MR_OK)
        code = mr__leaves_of(&y, out, "the result");
    if (code == MR_OK)
        code = mr__capture_find(k, x, c->n_args, y.v, y.n, &found);
    if (code == MR_OK)
        code = check_found(c, &found);
    if (code == MR_OK)
        code = mr__capture_replace(k, c->captured, x + c->n_args, c->n_captured,
                                   y.v, y.n);
    if (code == MR_OK)
        t = mr_tree_arrays(y.n, y.v);
    mr__vec_free(&found);
    mr__leaves_free(&y);
    mr_tree_release(out);
    return t;
}

/* The function over (arguments, captured arrays), all flat. */
static mr_tree *
again(void *ctx, const mr_tree *in)
{
    const mr_custom_call *c = ctx;
    mr_leaves x = {0};
    mr_capture k = {0};
    mr_tree *t = NULL;

    if (c->entry)
        return again_batched(c, in);
    if (mr__leaves_of(&x, in, "the arguments") == MR_OK)
        t = run_again(c, x.v, &k);
    mr__capture_free(&k);
    mr__leaves_free(&x);
    return t;
}

/* The inputs of the second run: there once the cotangents are. */
static mr_tree *
held_inputs(const mr_rule *r, int n)
{
    mr_array **x = mr__alloc_array((size_t)n + 1, sizeof *x);
    mr_tree *t = NULL;
    bool ok = x != NULL;

    for (int i = 0; ok && i < n; i++) {
        x[i] = mr__depends(r->primal[i + 1], r->cotangent, r->n_out);
        ok = x[i] != NULL;
    }
    if (ok)
        t = mr_tree_arrays(n, x);
    mr__dealloc(x);
    return t;
}

/* The cotangents that are wanted come together: with the one that the pass
 * goes on with, all that needs the inside is done, and it can go. */
static mr_code
tie_together(const mr_rule *r, mr_array **list, int n)
{
    mr_array **on = mr__alloc_array((size_t)n + 1, sizeof *on);
    mr_code code = on ? MR_OK : MR_E_MEMORY;
    int n_on = 0;

    for (int i = 0; on && i < n; i++)
        if (mr__rule_wants(r, i + 1))
            on[n_on++] = list[i];
    for (int i = 0; code == MR_OK && n_on > 1 && i < n; i++) {
        if (!mr__rule_wants(r, i + 1))
            continue;
        list[i] = mr__depends(list[i], on, n_on);
        code = list[i] ? MR_OK : mr__error_code();
    }
    mr__dealloc(on);
    return code;
}

mr_code
mr__checkpoint_vjp(const mr_rule *r, mr_array **list)
{
    const mr_custom_call *c = mr__call_of(r->primal[0]);
    const mr_callee f = {again, (void *)(uintptr_t)c, false};
    int n = c->n_args + c->n_captured;
    mr_tree *x = held_inputs(r, n);
    mr_tree *u = x ? mr_tree_arrays(r->n_out, r->cotangent) : NULL;
    mr_tree *pair = u ? mr__vjp(&f, x, u) : NULL;

    if (!pair || mr_tree_leaves(mr_tree_at(pair, 1), list, n) != MR_OK)
        return mr__error_code();
    return tie_together(r, list, n);
}
