/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.c -- what a function found outside itself while it was traced.
 *
 * While a capture is open every node made on this thread is noted.  A walk
 * down from the function's results ends at its arguments and at what was not
 * made meanwhile: of that, what depends on a live trace is captured.  With
 * the same knowledge the results can be made again over other arrays in the
 * place of the captured ones (a rule that runs the function a second time
 * turns them into arguments so).
 *
 * Random keys that the function draws are recorded, to be given again when it
 * is run a second time.
 *
 * Called by: custom.c, checkpoint.c.  Calls: graph/, base/.
 */
#include "transform/custom.h"

#include <stddef.h>

#include "base/alloc.h"
#include "base/error.h"
#include "marram/ops.h"

/* ---- keys ---------------------------------------------------------------- */

static mr_array *
next_key(mr_key_source *s)
{
    mr_capture *c =
        (mr_capture *)(void *)((char *)s - offsetof(mr_capture, keys));
    mr_array *key;

    if (c->play)
        return c->next < c->drawn.n
                   ? mr__scope_own(mr__retain(c->drawn.v[c->next++]))
                   : mr__fail_null(MR_E_STATE,
                                   "a function under checkpoint drew more "
                                   "random numbers when it ran again");
    mr__ctx.keys = c->outer_keys;
    key = mr_random_next_key();
    mr__ctx.keys = s;
    if (key && !mr__vec_push(&c->drawn, mr__retain(key)))
        return NULL;
    return key;
}

/* ---- open and closed ------------------------------------------------------
 */

void
mr__capture_begin(mr_capture *c, bool record_keys)
{
    *c = (mr_capture){.made = {.outer = mr__ctx.made},
                      .keys = {next_key},
                      .outer_keys = mr__ctx.keys};
    mr__ctx.made = &c->made;
    if (record_keys)
        mr__ctx.keys = &c->keys;
}

void
mr__capture_play(mr_capture *c, mr_array *const *key, int n)
{
    mr__capture_begin(c, true);
    c->play = true;
    for (int i = 0; i < n; i++)
        if (!mr__vec_push(&c->drawn, mr__retain(key[i]))) {
            mr__release(key[i]);
            c->made.incomplete = true;
        }
}

mr_code
mr__capture_end(mr_capture *c)
{
    mr__ctx.made = c->made.outer;
    mr__ctx.keys = c->outer_keys;
    return c->made.incomplete ? MR_E_MEMORY : MR_OK;
}

void
mr__capture_free(mr_capture *c)
{
    for (size_t i = 0; i < c->drawn.n; i++)
        mr__release(c->drawn.v[i]);
    mr__vec_free(&c->drawn);
    mr__map_free(&c->made.node);
}

static bool
was_made(const mr_capture *c, const mr_array *x)
{
    return mr__map_get(&c->made.node, x) != NULL;
}

/* ---- finding ---------------------------------------------------------------
 */

/* Push x on the stack if it was not met before. */
static bool
meet(mr_map *seen, mr_vec *stack, mr_array *x)
{
    return !x || x->trace == 0 || !mr__trace_live(x->trace) ||
           mr__vec_push_new(stack, seen, x);
}

/* A projection of a tuple that was found stands for what was found. */
static bool
is_found(const mr_capture *c, const mr_array *x)
{
    if (x->n_in == 1 && (x->in[0] != NULL) &&
        (x->in[0]->flags & MR_NODE_TUPLE) && !was_made(c, x->in[0]))
        return true;
    return !was_made(c, x);
}

mr_code
mr__capture_find(mr_capture *c, mr_array *const *stop, int n_stop,
                 mr_array *const *value, int n, mr_vec *found)
{
    mr_map seen = {0};
    mr_vec stack = {0};
    bool ok = true;

    for (int i = 0; ok && i < n_stop; i++)
        ok = mr__map_put(&seen, stop[i], stop[i]);
    for (int i = 0; ok && i < n; i++)
        ok = meet(&seen, &stack, value[i]);
    while (ok && stack.n > 0) {
        mr_array *x = mr__vec_pop(&stack);

        if (is_found(c, x)) {
            ok = mr__vec_push(found, x);
            continue;
        }
        for (int i = 0; ok && i < mr__n_edges(x); i++)
            ok = meet(&seen, &stack, x->in[i]);
    }
    mr__map_free(&seen);
    mr__vec_free(&stack);
    return ok ? MR_OK : MR_E_MEMORY;
}

/* ---- replacing -------------------------------------------------------------
 */

/* x over other inputs, where x came from. */
static mr_array *
node_again(const mr_array *x, mr_array *const *in)
{
    const char *site = mr__ctx.site;
    uint32_t stream = mr__ctx.stream;
    mr_array *y;

    if (x->site)
        mr__ctx.site = x->site;
    mr__ctx.stream = x->stream;
    if (x->op == &mr__op_output || x->op == &mr__op_result)
        y = mr__node_output(
            in[mr__n_edges(x) - 1],
            (int)((const mr_output_params *)mr__params(x))->index);
    else if (x->flags & MR_NODE_TUPLE)
        y = mr__node_tuple(x->op, mr__params(x), x->n_in, in, x->n_out);
    else if (x->op->fuse.kind == MR_FUSE_ELEMENTWISE && !x->params)
        y = mr__node_elementwise(x->op, (mr_dtype)x->dtype, x->n_in, in);
    else
        y = mr__node_new(x->op, mr__params(x), x->n_in, in);
    mr__ctx.site = site;
    mr__ctx.stream = stream;
    return y;
}

/* The edges of x in their new form; *changed when any is another. */
static mr_array **
edges_again(mr_map *now, const mr_array *x, bool *changed)
{
    int n = mr__n_edges(x);
    mr_array **in = mr__alloc_array((size_t)n + 1, sizeof *in);

    *changed = false;
    for (int i = 0; in && i < n; i++) {
        in[i] = mr__map_get(now, x->in[i]);
        if (!in[i])
            in[i] = x->in[i];
        *changed = *changed || in[i] != x->in[i];
    }
    return in;
}

/* All that x needs is there: its new form, x itself when nothing changed. */
static bool
settle(mr_map *now, mr_array *x)
{
    bool changed;
    mr_array **in = edges_again(now, x, &changed), *y = x;

    if (in && changed)
        y = node_again(x, in);
    mr__dealloc(in);
    return in && y && mr__map_put(now, x, y);
}

/* Depth first, inputs before users. */
static bool
replace_below(mr_capture *c, mr_map *now, mr_vec *stack, mr_array *root)
{
    if (!mr__vec_push(stack, root))
        return false;
    while (stack->n > 0) {
        mr_array *x = stack->v[stack->n - 1];
        size_t before = stack->n;

        if (mr__map_get(now, x) || !was_made(c, x)) {
            mr__vec_pop(stack);
            continue;
        }
        for (int i = mr__n_edges(x); i-- > 0;)
            if (x->in[i] && !mr__map_get(now, x->in[i]) &&
                was_made(c, x->in[i]) && !mr__vec_push(stack, x->in[i]))
                return false;
        if (stack->n > before)
            continue;
        mr__vec_pop(stack);
        if (!settle(now, x))
            return false;
    }
    return true;
}

mr_code
mr__capture_replace(mr_capture *c, mr_array *const *from, mr_array *const *to,
                    int n_from, mr_array **value, int n)
{
    mr_map now = {0};
    mr_vec stack = {0};
    bool ok = true, any = false;

    for (int i = 0; ok && i < n_from; i++) {
        any = any || from[i] != to[i];
        ok = mr__map_put(&now, from[i], to[i]);
    }
    for (int i = 0; ok && any && i < n; i++) {
        mr_array *y;

        ok = replace_below(c, &now, &stack, value[i]);
        y = ok ? mr__map_get(&now, value[i]) : NULL;
        if (y)
            value[i] = y;
    }
    mr__map_free(&now);
    mr__vec_free(&stack);
    return ok ? MR_OK : mr__error_code();
}
