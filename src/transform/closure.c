/* SPDX-License-Identifier: Apache-2.0
 *
 * closure.c -- closures: a function with its context, counted, and the way in
 * which transforms call one.
 *
 * A closure's count is that of a buffer: the buffer's release already knows
 * how to run a user's callback on a user's thread, under no lock, whoever
 * drops the last reference.
 * Called by: the transforms, compile/, the bindings.  Calls: array/, base/.
 */
#include "transform/call.h"

#include "array/buffer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "graph/context.h"
#include "marram/error.h"
#include "marram/scope.h"
#include "marram/tree.h"

struct mr_closure {
    mr_callee callee;
    void (*destroy)(void *ctx);
    mr_buffer *counted; /* its data is this closure */
};

static void
closure_free(void *ctx, void *data)
{
    mr_closure *c = data;

    (void)ctx;
    if (c->destroy)
        c->destroy(c->callee.ctx);
    mr__dealloc(c);
}

static mr_closure *
closure_make(mr_callee callee, void (*destroy)(void *ctx))
{
    mr_closure *c = NULL;

    if (callee.fn)
        c = mr__alloc(sizeof *c);
    else
        mr__fail(MR_E_NULL, "the function of a closure is NULL");
    if (c) {
        *c = (mr_closure){.callee = callee, .destroy = destroy};
        c->counted = mr__buffer_wrap(c, 0, closure_free, NULL);
        if (c->counted)
            return c;
        mr__dealloc(c);
    }
    if (destroy)
        destroy(callee.ctx);
    return NULL;
}

mr_closure *
mr_closure_new(mr_fn fn, void *ctx, void (*destroy)(void *ctx))
{
    return closure_make((mr_callee){fn, ctx, false}, destroy);
}

mr_closure *
mr_closure_new_foreign(mr_fn fn, void *ctx, void (*destroy)(void *ctx))
{
    return closure_make((mr_callee){fn, ctx, true}, destroy);
}

mr_closure *
mr_closure_retain(mr_closure *c)
{
    if (c)
        mr__buffer_retain(c->counted);
    return c;
}

void
mr_closure_release(mr_closure *c)
{
    if (c)
        mr__buffer_release(c->counted);
}

mr_callee
mr__closure_callee(const mr_closure *c)
{
    return c->callee;
}

/* A function in C that went on after it asked for a value which the trace does
 * not have may have computed anything: its result is no result.  Bindings make
 * exceptions of errors, which cannot go unseen. */
static mr_tree *
result_of(const mr_callee *f, mr_tree *out)
{
    if (!out && !mr__error_pending())
        mr__fail(MR_E_NULL, "the function gave NULL without an error; "
                            "a function without result gives "
                            "mr_tree_none()");
    if (!out || f->foreign || !mr__error_here.unread)
        return out;
    mr_tree_release(out);
    return NULL;
}

/* In a scope the result is the scope's: ours is one more reference.  Under a
 * barrier the function gives us its own. */
mr_tree *
mr__callee_call(const mr_callee *f, const mr_tree *in)
{
    const char *site = mr__ctx.site;
    uint32_t stream = mr__ctx.stream;
    struct mr__door door;
    mr_tree *out = NULL;
    mr_scope s;

    if (f->fn == NULL)
        return mr__fail_null(MR_E_NULL, "the function is NULL");
    door = mr__error_door(NULL, NULL);
    s = f->foreign ? mr_scope_none() : mr_scope_begin();
    if (s.token != 0) {
        bool unread = mr__error_here.unread;

        mr__lock_assert_none("a closure");
        mr__error_here.unread = false;
        out = f->fn(f->ctx, in);
        if (out && !f->foreign)
            out = mr_tree_retain(out);
        out = result_of(f, out);
        mr__error_here.unread |= unread;
        mr_scope_end(s);
    }
    mr__error_door_restore(door);
    mr__ctx.site = site;
    mr__ctx.stream = stream;
    return out;
}

static bool
closure_given(const mr_closure *c)
{
    if (!c && !mr__error_pending())
        mr__fail(MR_E_NULL, "the closure is NULL");
    return c != NULL;
}

mr_tree *
mr_closure_call(mr_closure *c, const mr_tree *in)
{
    if (!closure_given(c))
        return NULL;
    return mr__scope_own_tree(mr__callee_call(&c->callee, in));
}

mr_tree *
mr_closure_value_and_grad(mr_closure *c, const mr_tree *args,
                          const int *argnums, int n_argnums)
{
    return closure_given(c)
               ? mr__value_and_grad(&c->callee, args, argnums, n_argnums)
               : NULL;
}

mr_tree *
mr_closure_vjp(mr_closure *c, const mr_tree *primals, const mr_tree *cotangents)
{
    return closure_given(c) ? mr__vjp(&c->callee, primals, cotangents) : NULL;
}

mr_tree *
mr_closure_jvp(mr_closure *c, const mr_tree *primals, const mr_tree *tangents)
{
    return closure_given(c) ? mr__jvp(&c->callee, primals, tangents) : NULL;
}

mr_tree *
mr_closure_vmap(mr_closure *c, const mr_tree *args, const int32_t *in_axes,
                int n_in, const int32_t *out_axes, int n_out)
{
    return closure_given(c)
               ? mr__vmap(&c->callee, args, in_axes, n_in, out_axes, n_out)
               : NULL;
}
