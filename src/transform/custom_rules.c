/* SPDX-License-Identifier: Apache-2.0
 *
 * custom_rules.c -- the rules of a call (custom.h): the user's where there are
 * some, the values' own otherwise.
 *
 * What a rule of the user gives is checked here, where it was called: number,
 * shapes and dtypes.  A call over a batch asks the call of one entry, mapped.
 *
 * Called by: the walks, through the descriptor.  Calls: checkpoint.c, vmap.
 */
#include "transform/custom.h"

#include <stdatomic.h>
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "graph/tree.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/tree.h"
#include "transform/call.h"
#include "transform/traced.h"
#include "transform/walk.h"

enum { ID_CALL = 372 };

/* ---- trees with holes ------------------------------------------------------
 */

/* A tree like t over leaves from *at on, none where there is NULL. */
static mr_tree *
tree_with_holes(const mr_tree *t, mr_array *const **at)
{
    mr_tree_kind kind = mr_tree_kind_of(t);
    int n = mr_tree_size(t);
    mr_tree **item, *made = NULL;
    bool ok;

    if (kind == MR_TREE_NONE)
        return mr_tree_none();
    if (kind == MR_TREE_LEAF) {
        mr_array *x = *(*at)++;

        return x ? mr_tree_leaf(x) : mr_tree_none();
    }
    item = mr__alloc_array((size_t)n + 1, sizeof *item);
    ok = item != NULL;
    for (int i = 0; ok && i < n; i++) {
        item[i] = tree_with_holes(mr_tree_at(t, i), at);
        ok = item[i] != NULL;
    }
    if (ok && kind == MR_TREE_LIST)
        made = mr_tree_list(n, item);
    else if (ok && kind == MR_TREE_TUPLE)
        made = mr_tree_tuple(n, item);
    else if (ok)
        made = mr_tree_dict(n, t->key, item);
    mr__dealloc(item);
    return made;
}

/* The leaves of `got` in the order of `want`, NULL for none; false when the
 * structures differ elsewhere. */
static bool
match(const mr_tree *want, const mr_tree *got, mr_array ***at)
{
    mr_tree_kind kind = mr_tree_kind_of(want);

    if (kind == MR_TREE_LEAF && mr_tree_kind_of(got) == MR_TREE_NONE) {
        *(*at)++ = NULL;
        return true;
    }
    if (mr_tree_kind_of(got) == MR_TREE_NONE && kind != MR_TREE_NONE) {
        for (int i = mr_tree_n_leaves(want); i > 0; i--)
            *(*at)++ = NULL;
        return true;
    }
    /* lists and tuples are one here: they differ in no entry */
    if (kind != mr_tree_kind_of(got) &&
        (kind == MR_TREE_LEAF || kind == MR_TREE_NONE || kind == MR_TREE_DICT ||
         mr_tree_kind_of(got) == MR_TREE_DICT ||
         mr_tree_kind_of(got) == MR_TREE_LEAF))
        return false;
    if (kind == MR_TREE_LEAF)
        *(*at)++ = got->leaf;
    if (mr_tree_size(want) != mr_tree_size(got))
        return false;
    for (int i = 0; i < mr_tree_size(want); i++) {
        const mr_tree *g = kind == MR_TREE_DICT
                               ? mr_tree_get(got, mr_tree_key(want, i))
                               : mr_tree_at(got, i);

        if (!g || !match(mr_tree_at(want, i), g, at))
            return false;
    }
    return true;
}

static mr_code
match_result(const mr_tree *want, const mr_tree *got, mr_array **out,
             const char *rule, const char *what)
{
    mr_array **at = out;

    if (match(want, got, &at))
        return MR_OK;
    /* one argument may be given bare */
    at = out;
    if (mr_tree_kind_of(want) == MR_TREE_TUPLE && mr_tree_size(want) == 1 &&
        match(mr_tree_at(want, 0), got, &at))
        return MR_OK;
    mr_error_take();
    return mr__fail(MR_E_VALUE,
                    "a custom %s must give %s: it gave a tree of %d arrays "
                    "where one of %d is right, or of another structure",
                    rule, what, mr_tree_n_leaves(got), mr_tree_n_leaves(want));
}

/* ---- calling a rule of the user -------------------------------------------
 */

/* What an entry should be: shape and dtype of x; integers have no tangent, so
 * anything there is zero. */
static mr_code
check_entry(const mr_array *x, mr_array **got, const char *rule,
            const char *what, int i)
{
    char a[256], b[256];

    if (*got && !mr__dtype_is_inexact(x->dtype))
        *got = NULL;
    if (!*got)
        return MR_OK;
    if ((*got)->ndim != x->ndim ||
        memcmp((*got)->dim, x->dim, x->ndim * sizeof *x->dim) != 0)
        return mr__fail(
            MR_E_SHAPE,
            "%s %d of a custom %s has the shape %s where %s is right", what, i,
            rule, mr__shape_text(a, sizeof a, (*got)->ndim, (*got)->dim),
            mr__shape_text(b, sizeof b, x->ndim, x->dim));
    if ((*got)->dtype != x->dtype)
        return mr__fail(
            MR_E_DTYPE, "%s %d of a custom %s is %s where %s is right", what, i,
            rule, mr_dtype_name((*got)->dtype), mr_dtype_name(x->dtype));
    return MR_OK;
}

/* Run the rule; its result's leaves into `out`, borrowed from *keep. */
static mr_code
run_rule(mr_closure *rule, mr_tree *in, const mr_tree *want, mr_array **out,
         const char *name, const char *what, mr_tree **keep)
{
    const mr_callee f = mr__closure_callee(rule);

    *keep = in ? mr__scope_own_tree(mr__callee_call(&f, in)) : NULL;
    if (!*keep)
        return mr__error_code();
    return match_result(want, *keep, out, name, what);
}

/* ---- reverse ---------------------------------------------------------------
 */

static mr_code
vjp_one(const mr_custom_call *c, mr_array *const *x, mr_array *const *u,
        mr_array *const *y, mr_array **out)
{
    mr_tree *part[3] = {mr_tree_like(c->in, x, c->n_args),
                        mr_tree_like(c->out, u, c->n_out),
                        mr_tree_like(c->out, y, c->n_out)};
    mr_tree *keep;
    mr_code code =
        run_rule(c->rules.vjp, mr_tree_tuple(3, part), c->in, out, "vjp",
                 "a cotangent for each array of the arguments", &keep);

    for (int i = 0; code == MR_OK && i < c->n_args; i++)
        code = check_entry(x[i], &out[i], "vjp", "cotangent", i);
    return code;
}

static mr_code vjp_any(const mr_custom_call *c, mr_array *const *x,
                       mr_array *const *u, mr_array *const *y, mr_array **out);

static mr_tree *
vjp_flat(void *ctx, const mr_tree *in)
{
    const mr_custom_call *c = ctx;
    mr_leaves l = {0};
    mr_array **out = mr__alloc_array((size_t)c->n_args + 1, sizeof *out);
    mr_tree *t = NULL;
    bool ok = out && mr__leaves_of(&l, in, "the arguments") == MR_OK &&
              vjp_any(c, l.v, l.v + c->n_args, l.v + c->n_args + c->n_out,
                      out) == MR_OK;

    for (int i = 0; ok && i < c->n_args; i++) {
        if (!out[i])
            out[i] = mr__result_zeros(l.v[i], 0);
        ok = out[i] != NULL;
    }
    if (ok)
        t = mr_tree_arrays(c->n_args, out);
    mr__leaves_free(&l);
    mr__dealloc(out);
    return t;
}

/* What an argument that all entries share gets from each is added. */
static mr_code
sum_shared(const mr_custom_call *c, mr_array **out)
{
    for (int i = 0; i < c->n_args; i++) {
        if (c->batched[i] || !mr__dtype_is_inexact(out[i]->dtype))
            continue;
        out[i] = mr_sum(out[i], MR_AXES(0), false);
        if (!out[i])
            return mr__error_code();
    }
    return MR_OK;
}

static mr_code
vjp_batched(const mr_custom_call *c, mr_array *const *x, mr_array *const *u,
            mr_array *const *y, mr_array **out)
{
    const mr_callee f = {vjp_flat, (void *)(uintptr_t)mr__call_of(c->entry),
                         false};
    size_t n_args = (size_t)c->n_args, n_out = (size_t)c->n_out,
           n = n_args + 2 * n_out;
    mr_array **all = mr__alloc_array(n + 1, sizeof *all);
    int32_t *axis = mr__alloc_array(n + 1, sizeof *axis);
    mr_tree *in = NULL, *t = NULL;

    if (all && axis) {
        memcpy(all, x, n_args * sizeof *all);
        memcpy(all + n_args, u, n_out * sizeof *all);
        memcpy(all + n_args + n_out, y, n_out * sizeof *all);
        for (size_t i = 0; i < n; i++)
            axis[i] = i >= n_args || c->batched[i] ? 0 : MR_VMAP_NONE;
        in = mr_tree_arrays((int)n, all);
    }
    if (in)
        t = mr__vmap(&f, in, axis, (int)n, NULL, 0);
    mr__dealloc(all);
    mr__dealloc(axis);
    if (!t || mr_tree_leaves(t, out, c->n_args) != MR_OK)
        return mr__error_code();
    return sum_shared(c, out);
}

static mr_code
vjp_any(const mr_custom_call *c, mr_array *const *x, mr_array *const *u,
        mr_array *const *y, mr_array **out)
{
    return c->entry ? vjp_batched(c, x, u, y, out) : vjp_one(c, x, u, y, out);
}

/* The cotangents of all inputs at once, kept for the node. */
static mr_code
make_list(const mr_rule *r, const mr_custom_call *c)
{
    int n = c->n_args + c->n_captured;
    mr_array **list = mr__alloc_zero(((size_t)n + 1) * sizeof *list);
    mr_code code;

    if (!list)
        return MR_E_MEMORY;
    code = c->rules.checkpoint
               ? mr__checkpoint_vjp(r, list)
               : vjp_any(c, r->primal + 1, r->cotangent, r->output, list);
    if (code != MR_OK) {
        mr__dealloc(list);
        return code;
    }
    for (int i = 0; i < n; i++)
        if (list[i])
            mr__retain(list[i]);
    r->memo->list = list;
    r->memo->n_list = n;
    return MR_OK;
}

/* A captured array is named as the user's program does, if it says how. */
static mr_array *
refuse_captured(const mr_rule *r, int i, const char *rule)
{
    const mr_array *x = r->primal[i];
    const mr_custom_call *c = mr__call_of(r->primal[0]);
    const char *name = NULL;
    char text[256];

    while (c->entry)
        c = mr__call_of(c->entry);
    if (c->rules.name)
        name = c->rules.name(mr__closure_callee(c->rules.f).ctx,
                             c->captured[i - 1 - c->n_args]);
    return mr__fail_null(
        MR_E_VALUE,
        "the function has a custom %s, which gives no derivative to the array "
        "%s%s%sthat it captures (%s %s, made at %s): pass it as an argument, "
        "or stop_gradient it",
        rule, name ? "'" : "", name ? name : "", name ? "' " : "",
        mr_dtype_name((mr_dtype)x->dtype),
        mr__shape_text(text, sizeof text, x->ndim, x->dim),
        x->site ? x->site : "an unknown line");
}

static mr_array *
call_vjp(const mr_rule *r, int i)
{
    const mr_custom_call *c = mr__call_of(r->primal[0]);
    int first_value = 1 + c->n_args + c->n_captured;
    mr_array *got;

    if (!c->rules.checkpoint && !c->rules.vjp)
        return i >= first_value ? r->cotangent[i - first_value] : MR_NONE;
    if (i == 0 || i >= first_value)
        return MR_NONE;
    if (!c->rules.checkpoint && i > c->n_args)
        return refuse_captured(r, i, "vjp");
    if (!r->memo->list && make_list(r, c) != MR_OK)
        return NULL;
    got = r->memo->list[i - 1];
    return got ? got : MR_NONE;
}

/* ---- forward ---------------------------------------------------------------
 */

static mr_code
jvp_one(const mr_custom_call *c, mr_array *const *x, mr_array *const *t,
        mr_array *const *y, mr_array **out)
{
    mr_array *const *at = t;
    mr_tree *part[2] = {mr_tree_like(c->in, x, c->n_args),
                        tree_with_holes(c->in, &at)};
    mr_tree *keep;
    mr_code code =
        run_rule(c->rules.jvp, mr_tree_tuple(2, part), c->out, out, "jvp",
                 "a tangent for each array of the outputs", &keep);

    for (int k = 0; code == MR_OK && k < c->n_out; k++)
        code = check_entry(y[k], &out[k], "jvp", "tangent", k);
    return code;
}

static mr_code jvp_any(const mr_custom_call *c, mr_array *const *x,
                       mr_array *const *t, mr_array *const *y, mr_array **out);

/* One entry of a batch: arguments, outputs, those tangents that there are. */
typedef struct jvp_entry {
    const mr_custom_call *c;
    const bool *has;
} jvp_entry;

static mr_tree *
jvp_flat(void *ctx, const mr_tree *in)
{
    const jvp_entry *e = ctx;
    const mr_custom_call *c = e->c;
    mr_leaves l = {0};
    size_t n_args = (size_t)c->n_args, n_out = (size_t)c->n_out;
    mr_array **room = mr__alloc_zero((n_args + n_out + 1) * sizeof *room);
    mr_array **out = room ? room + n_args : NULL;
    mr_tree *t = NULL;
    bool ok = room && mr__leaves_of(&l, in, "the arguments") == MR_OK;
    size_t next = n_args + n_out;

    for (size_t i = 0; ok && i < n_args; i++)
        room[i] = e->has[i] ? l.v[next++] : NULL;
    ok = ok && jvp_any(c, l.v, room, l.v + n_args, out) == MR_OK;
    for (size_t k = 0; ok && k < n_out; k++) {
        if (!out[k])
            out[k] = mr__result_zeros(l.v[n_args + k], 0);
        ok = out[k] != NULL;
    }
    if (ok)
        t = mr_tree_arrays(c->n_out, out);
    mr__leaves_free(&l);
    mr__dealloc(room);
    return t;
}

static mr_code
jvp_batched(const mr_custom_call *c, mr_array *const *x, mr_array *const *t,
            mr_array *const *y, mr_array **out)
{
    size_t n_args = (size_t)c->n_args, n_out = (size_t)c->n_out, n = 0;
    size_t most = 2 * n_args + n_out + 1;
    mr_array **all = mr__alloc_array(most, sizeof *all);
    int32_t *axis = mr__alloc_array(most, sizeof *axis);
    bool *has = mr__alloc_array(n_args + 1, sizeof *has);
    jvp_entry e = {mr__call_of(c->entry), has};
    const mr_callee f = {jvp_flat, &e, false};
    mr_tree *in = NULL, *got = NULL;

    if (all && axis && has) {
        for (; n < n_args + n_out; n++) {
            all[n] = n < n_args ? x[n] : y[n - n_args];
            axis[n] = n >= n_args || c->batched[n] ? 0 : MR_VMAP_NONE;
        }
        for (size_t i = 0; i < n_args; i++) {
            has[i] = t[i] != NULL;
            if (!has[i])
                continue;
            all[n] = t[i];
            axis[n++] = c->batched[i] ? 0 : MR_VMAP_NONE;
        }
        in = mr_tree_arrays((int)n, all);
    }
    if (in)
        got = mr__vmap(&f, in, axis, (int)n, NULL, 0);
    mr__dealloc(all);
    mr__dealloc(axis);
    mr__dealloc(has);
    return got ? mr_tree_leaves(got, out, c->n_out) : mr__error_code();
}

static mr_code
jvp_any(const mr_custom_call *c, mr_array *const *x, mr_array *const *t,
        mr_array *const *y, mr_array **out)
{
    return c->entry ? jvp_batched(c, x, t, y, out) : jvp_one(c, x, t, y, out);
}

static void
note_automatic(const mr_node *x)
{
    static _Atomic bool noted;

    /* relaxed: a flag that stands for itself alone */
    if (!atomic_exchange_explicit(&noted, true, memory_order_relaxed))
        mr__log(MR_LOG_WARN,
                "forward mode goes through a function with a custom vjp and "
                "no custom jvp (called at %s): it takes the function's own "
                "derivative; give it a jvp too",
                x->site ? x->site : "an unknown line");
}

static mr_code
make_tangents(const mr_rule *r, const mr_custom_call *c)
{
    mr_array **list = mr__alloc_zero(((size_t)c->n_out + 1) * sizeof *list);
    mr_code code;

    if (!list)
        return MR_E_MEMORY;
    code = jvp_any(c, r->primal + 1, r->tangent + 1, r->output, list);
    if (code != MR_OK) {
        mr__dealloc(list);
        return code;
    }
    for (int k = 0; k < c->n_out; k++)
        if (list[k])
            mr__retain(list[k]);
    r->memo->list = list;
    r->memo->n_list = c->n_out;
    return MR_OK;
}

/* The whole tangent comes with the first input that has one. */
static mr_array *
call_jvp(const mr_rule *r, int i)
{
    const mr_custom_call *c = mr__call_of(r->primal[0]);
    int first_value = 1 + c->n_args + c->n_captured;
    mr_array *got;

    if (!c->rules.jvp) {
        if (c->rules.vjp)
            note_automatic(r->node);
        return i == first_value + r->which ? r->tangent[i] : MR_NONE;
    }
    if (i >= first_value)
        return MR_NONE;
    if (i > c->n_args)
        return refuse_captured(r, i, "jvp");
    for (int j = 1; j < i; j++)
        if (r->tangent[j])
            return MR_NONE;
    if (!r->memo->list && make_tangents(r, c) != MR_OK)
        return NULL;
    got = r->memo->list[r->which];
    return got ? got : MR_NONE;
}

/* ---- batches ---------------------------------------------------------------
 */

/* The axes as a tree like the arguments. */
static mr_tree *
axes_tree(const mr_custom_call *c, const mr_batch *b)
{
    mr_array **axis = mr__alloc_array((size_t)c->n_args + 1, sizeof *axis);
    mr_tree *t = NULL;
    bool ok = axis != NULL;

    for (int i = 0; ok && i < c->n_args; i++) {
        axis[i] = mr_int(b->batched[i + 1] ? 0 : MR_VMAP_NONE);
        ok = axis[i] != NULL;
    }
    if (ok)
        t = mr_tree_like(c->in, axis, c->n_args);
    mr__dealloc(axis);
    return t;
}

/* Output k of the user's rule with the batch in front. */
static mr_array *
place_batch(const mr_batch *b, int k, mr_array *y, mr_array *at)
{
    mr_scalar axis;
    int64_t to, dim[MR_MAX_NDIM + 1] = {b->size};

    if (!y || !at || mr_array_item(at, &axis) != MR_OK)
        return y && at ? NULL
                       : mr__fail_null(MR_E_VALUE,
                                       "a custom vmap must give every output "
                                       "and its axis, none for output %d",
                                       k);
    to = axis.kind == MR_SCALAR_INT ? axis.as.i : 0;
    if (to == MR_VMAP_NONE) {
        if (y->ndim > 0)
            memcpy(dim + 1, y->dim, y->ndim * sizeof *dim);
        return mr_broadcast_to(y, (mr_shape){dim, y->ndim + 1});
    }
    if (to < 0)
        to += y->ndim;
    if (to < 0 || to >= y->ndim || y->dim[to] != b->size)
        return mr__fail_null(MR_E_VALUE,
                             "a custom vmap names axis %lld of output %d, "
                             "which is not the batch of %lld",
                             (long long)to, k, (long long)b->size);
    return to == 0 ? y : mr_moveaxis(y, (int32_t)to, 0);
}

/* The values that the user's rule gives, batch in front. */
static mr_code
values_of_rule(const mr_batch *b, const mr_custom_call *c, mr_array **value)
{
    mr_tree *in[2] = {mr_tree_like(c->in, b->in + 1, c->n_args),
                      axes_tree(c, b)};
    mr_array **axis = mr__alloc_array((size_t)c->n_out + 1, sizeof *axis);
    const mr_tree *want[2] = {c->out, c->out};
    mr_tree *pair = NULL, *both;
    mr_code code = MR_E_MEMORY;
    const mr_callee f = mr__closure_callee(c->rules.vmap);

    if (axis && in[0] && in[1] && (both = mr_tree_tuple(2, in)))
        pair = mr__scope_own_tree(mr__callee_call(&f, both));
    code = pair ? MR_OK : mr__error_code();
    if (pair && mr_tree_size(pair) != 2)
        code =
            mr__fail(MR_E_VALUE, "a custom vmap must give (outputs, out_axes)");
    if (code == MR_OK)
        code = match_result(want[0], mr_tree_at(pair, 0), value, "vmap",
                            "the outputs of the function");
    if (code == MR_OK)
        code = match_result(want[1], mr_tree_at(pair, 1), axis, "vmap",
                            "an axis for each output");
    for (int k = 0; code == MR_OK && k < c->n_out; k++) {
        value[k] = place_batch(b, k, value[k], axis[k]);
        code = value[k] ? MR_OK : mr__error_code();
    }
    mr__dealloc(axis);
    return code;
}

/* What the function captures is not among what a rule of the user sees. */
static mr_code
check_captured(const mr_batch *b, const mr_custom_call *c)
{
    mr_rule r = {.node = b->node, .primal = b->node->in};

    for (int i = 1 + c->n_args; i < 1 + c->n_args + c->n_captured; i++)
        if (b->batched[i]) {
            refuse_captured(&r, i, "vmap");
            return mr__error_code();
        }
    return MR_OK;
}

static mr_custom_call *
batched_call(const mr_batch *b, const mr_custom_call *c)
{
    mr_custom_call *d = mr__alloc_zero(sizeof *d);
    size_t n = (size_t)(c->n_args + c->n_captured);

    if (!d)
        return NULL;
    mr__custom_retain(&d->rules, &c->rules);
    mr_closure_release(d->rules.vmap);
    d->rules.vmap = NULL;
    d->n_args = c->n_args;
    d->n_captured = c->n_captured;
    d->n_out = c->n_out;
    d->size = b->size;
    d->entry = mr__retain(b->node->in[0]);
    d->batched = mr__alloc_array(n + 1, sizeof *d->batched);
    if (!d->batched) {
        mr__call_free(d);
        return NULL;
    }
    memcpy(d->batched, b->batched + 1, n * sizeof *d->batched);
    return d;
}

static mr_code
batched_values(const mr_batch *b, const mr_custom_call *c, mr_array **value)
{
    int first = 1 + c->n_args + c->n_captured;

    if (c->rules.vmap) {
        mr_code code = check_captured(b, c);

        return code == MR_OK ? values_of_rule(b, c, value) : code;
    }
    for (int k = 0; k < c->n_out; k++) {
        value[k] = mr__batch_in(b, first + k);
        if (!value[k])
            return mr__error_code();
    }
    return MR_OK;
}

/* The same call over the batch. */
static mr_array *
call_vmap(const mr_batch *b)
{
    const mr_custom_call *c = mr__call_of(b->node->in[0]);
    size_t n = (size_t)(c->n_args + c->n_captured), n_out = (size_t)c->n_out;
    mr_array **in = mr__alloc_array(n + n_out + 1, sizeof *in);
    mr_array *holder, *x = NULL;
    mr_custom_call *d;

    if (!in)
        return NULL;
    memcpy(in, b->in + 1, n * sizeof *in);
    if (batched_values(b, c, in + n) == MR_OK) {
        d = batched_call(b, c);
        holder = d ? mr__call_holder(d) : NULL;
        if (holder)
            x = mr__call_node(holder, d, in);
    }
    mr__dealloc(in);
    return x;
}

/* ---- the descriptor --------------------------------------------------------
 */

static mr_code
call_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_call_params *p = c->params;

    for (int64_t k = 0; k < p->n_out; k++)
        mr__aval_like(&out[k], c->in[c->n_in - p->n_out + k]);
    return MR_OK;
}

static int
call_follows(const mr_node *n, mr_rule_kind kind)
{
    const mr_custom *rules = &mr__call_of(n->in[0])->rules;
    bool own = kind == MR_RULE_VJP   ? rules->checkpoint || rules->vjp
               : kind == MR_RULE_JVP ? rules->jvp != NULL
                                     : rules->vmap != NULL;

    return own ? n->n_in - n->n_out : n->n_in;
}

static const mr_field call_fields[] = {
    MR_FIELD(1, INT, mr_call_params, n_args),
    MR_FIELD(2, INT, mr_call_params, n_captured),
    MR_FIELD(3, INT, mr_call_params, n_out),
};

const mr_op mr__op_call = {
    .id = ID_CALL,
    .version = 1,
    .n_in = -1,
    .n_out = 1, /* the call says how many: mr__node_tuple */
    .flags = MR_FLAG_FORWARDS,
    .n_fields = 3,
    .params_bytes = sizeof(mr_call_params),
    .name = "custom_function",
    .fields = call_fields,
    .infer = call_infer,
    .vjp = call_vjp,
    .jvp = call_jvp,
    .vmap = call_vmap,
    .follows = call_follows,
};
