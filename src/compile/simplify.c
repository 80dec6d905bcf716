/* SPDX-License-Identifier: Apache-2.0
 *
 * simplify.c -- a smaller trace that gives the same bits.
 *
 * One walk over the nodes in topological order.  Each is replaced by
 *   what it is the identity of;
 *   a constant: an elementwise operator over numbers that are the same
 *     everywhere, computed by the kernel from one element of each;
 *   what a rule of rules.c makes of it;
 *   what a chain of views began with, when the chain leads back to it;
 *   the node before it with the same operator, parameters and inputs;
 *   itself over its replaced inputs.
 * What no result reaches any more is dead, and stays behind.
 *
 * How an operand lies.  The last bits of a product depend on the layout of
 * its operands, so a replacement must lie as the original would, wherever an
 * operator with a kernel may look: through views, but not through elementwise
 * operators and reductions, whose results are row-major and whose bits do not
 * depend on it.  An argument may lie in any way here.
 *
 * Called by: program.c.  Calls: rules.c, marram/ops.h.
 */
#include "compile/simplify.h"

#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "compile/program.h"
#include "compile/verify.h"
#include "eval/check.h"
#include "eval/fuse.h"
#include "eval/registry.h"
#include "graph/context.h"
#include "graph/op.h"
#include "graph/read.h"
#include "marram/ops.h"

/* Views looked through in search of where a chain began. */
#define LONG_CHAIN 8

/* A node of the trace. */
typedef struct item {
    mr_array *x;
    mr_array *now; /* what stands for it */
    bool depends;  /* on an argument */
    bool laid_out; /* a kernel may look at how it lies */
    uint64_t hash; /* of those that can be common */
    struct item *next_same;
} item;

typedef struct simplifier {
    mr_arena arena;
    mr_map item;  /* array -> item */
    mr_vec order; /* items, topological */
    mr_vec stack;
    mr_vec made;  /* what stands for something: retained until the end */
    item **table; /* by hash */
    size_t mask;
    uint64_t trace;
    mr_simplified *facts;
    mr_fuses_fn fuses;
} simplifier;

/* ---- the walk
 * --------------------------------------------------------------------- */

/* A recipe of this trace.  What the function found elsewhere another thread
 * may be evaluating: its inputs go when it is done. */
static bool
is_recipe(const simplifier *s, const mr_array *x)
{
    return x->trace == s->trace && mr__state(x) == MR_NEW &&
           !(x->flags & MR_NODE_PLACEHOLDER);
}

static item *
item_of(const simplifier *s, const mr_array *x)
{
    return mr__map_get(&s->item, x);
}

static bool
item_add(simplifier *s, mr_array *x)
{
    item *t = mr__arena_zero(&s->arena, sizeof *t);

    if (t == NULL || !mr__map_put(&s->item, x, t) ||
        !mr__vec_push(&s->order, t))
        return false;
    t->x = t->now = x;
    t->depends = x->flags & MR_NODE_PLACEHOLDER;
    for (int i = 0; is_recipe(s, x) && i < x->n_in; i++) {
        const item *in = item_of(s, x->in[i]);

        t->depends |= in != NULL && in->depends;
    }
    return true;
}

/* Depth first, inputs first.  What depends on no argument is looked at as far
 * as it could be one number. */
static bool
walk(simplifier *s, mr_array *root)
{
    if (!mr__vec_push(&s->stack, root))
        return false;
    while (s->stack.n > 0) {
        mr_array *x = s->stack.v[s->stack.n - 1];
        size_t before = s->stack.n;

        if (item_of(s, x) == NULL && is_recipe(s, x))
            for (int i = x->n_in; i-- > 0;)
                if (item_of(s, x->in[i]) == NULL &&
                    !mr__vec_push(&s->stack, x->in[i]))
                    return false;
        if (s->stack.n > before)
            continue;
        mr__vec_pop(&s->stack);
        if (item_of(s, x) == NULL && !item_add(s, x))
            return false;
    }
    return true;
}

static bool
is_fused(const simplifier *s, const mr_array *x)
{
    return (x->op->fuse.kind == MR_FUSE_ELEMENTWISE ||
            x->op->fuse.kind == MR_FUSE_REDUCTION) &&
           s->fuses(mr__fuse_k(x), mr__fuse_operand(x));
}

static bool
is_view(const mr_array *x)
{
    return x->op->fuse.kind == MR_FUSE_VIEW && x->n_in == 1;
}

/* From the results back: who is read by kernels. */
static void
find_laid_out(simplifier *s)
{
    for (size_t n = s->order.n; n-- > 0;) {
        const item *t = s->order.v[n];

        if (!is_recipe(s, t->x) || is_fused(s, t->x) ||
            (t->x->op->fuse.kind == MR_FUSE_VIEW && !t->laid_out))
            continue;
        for (int i = 0; i < t->x->n_in; i++)
            item_of(s, t->x->in[i])->laid_out = true;
    }
}

/* ---- layouts
 * ---------------------------------------------------------------------- */

/* A layout of x's shape with gaps between all rows: no view of it is one by
 * chance. */
static void
spaced(const mr_array *x, mr_layout *l)
{
    int64_t step = 1;

    l->ndim = x->ndim;
    l->offset = 0;
    memcpy(l->dim, x->dim, (size_t)x->ndim * sizeof *l->dim);
    for (int i = x->ndim - 1; i >= 0; i--) {
        l->stride[i] = step;
        step *= x->dim[i] + 1;
    }
}

static void
row_major(const mr_array *x, mr_layout *l)
{
    l->ndim = x->ndim;
    l->offset = 0;
    memcpy(l->dim, x->dim, (size_t)x->ndim * sizeof *l->dim);
    mr__strides_fresh(x->ndim, l->dim, l->stride);
}

static bool
same_layout(const mr_layout *a, const mr_layout *b)
{
    if (a->ndim != b->ndim || a->offset != b->offset)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i] ||
            (a->dim[i] > 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

/* The views of chain[0..n), the last first, over this layout. */
static bool
look_through(const mr_array *const *chain, int n, const mr_layout *from,
             mr_layout *to)
{
    mr_layout l = *from;

    for (int i = n - 1; i >= 0; i--) {
        if (!chain[i]->op->view(chain[i], &l, to))
            return false;
        l = *to;
    }
    return true;
}

/* x lies row-major when the program runs, for sure. */
static bool
lies_row_major(const mr_array *x)
{
    const mr_array *chain[LONG_CHAIN];
    mr_layout from, to, want;
    int n = 0;

    if (x->flags & (MR_NODE_PLACEHOLDER | MR_NODE_TUPLE))
        return false;
    if (mr__state(x) == MR_DONE)
        return x->ndim == 0 ||
               mr__is_contiguous(x->ndim, x->dim, mr__strides(x));
    while (mr__state(x) == MR_NEW && is_view(x) && n < LONG_CHAIN &&
           x->op->view != NULL) {
        chain[n++] = x;
        x = x->in[0];
    }
    if (n == 0)
        return x->op != &mr__op_output && x->op->fuse.kind != MR_FUSE_VIEW;
    if (n == LONG_CHAIN || !lies_row_major(x))
        return false;
    row_major(x, &from);
    if (!look_through(chain, n, &from, &to))
        return false;
    row_major(chain[0], &want);
    return same_layout(&to, &want);
}

/* y in place of t->x, where the original would be row-major. */
static bool
may_replace(simplifier *s, const item *t, const mr_array *y)
{
    if (!t->laid_out || lies_row_major(y))
        return true;
    s->facts->kept++;
    return false;
}

/* ---- constants
 * -------------------------------------------------------------------- */

/* The operator over one element of each input, by its kernel. */
static mr_array *
one_element(const mr_array *x, mr_array *const *in)
{
    mr_array *scalar[4], *y;
    uint64_t trace = mr__ctx.trace;
    bool ok;

    for (int i = 0; i < x->n_in; i++) {
        scalar[i] =
            mr__node_scalar((mr_dtype)in[i]->dtype, mr__fuse_constant(in[i]));
        if (scalar[i] == NULL)
            return NULL;
    }
    y = x->params != NULL
            ? mr__node_new(x->op, mr__params(x), x->n_in, scalar)
            : mr__node_elementwise(x->op, (mr_dtype)x->dtype, x->n_in, scalar);
    mr__ctx.trace = 0;
    ok = y != NULL && mr__array_ready(y) == MR_OK;
    mr__ctx.trace = trace;
    return ok ? mr__node_scalar((mr_dtype)x->dtype, mr__array_first(y)) : NULL;
}

static mr_array *
fold(simplifier *s, const item *t, mr_array *const *in, bool *failed)
{
    const mr_array *x = t->x;
    mr_array *y;

    if (x->op->fuse.kind != MR_FUSE_ELEMENTWISE || x->n_in < 1 || x->n_in > 4 ||
        x->size == 0)
        return NULL;
    for (int i = 0; i < x->n_in; i++)
        if (mr__fuse_constant(in[i]) == NULL)
            return NULL;
    if (t->laid_out && x->ndim > 0) {
        s->facts->kept++;
        return NULL;
    }
    y = one_element(x, in);
    if (y != NULL && x->ndim > 0)
        y = mr_broadcast_to(y, (mr_shape){x->dim, x->ndim});
    *failed = y == NULL;
    s->facts->folded += y != NULL;
    return y;
}

/* ---- views
 * ------------------------------------------------------------------------ */

/* What a chain of views that ends in x began with, if it leads back there. */
static mr_array *
undone(simplifier *s, const item *t, mr_array *const *in)
{
    const mr_array *chain[LONG_CHAIN + 1] = {t->x};
    mr_array *from = in[0];
    mr_layout a, b;

    if (!is_view(t->x) || t->x->op->view == NULL)
        return NULL;
    for (int n = 1; n <= LONG_CHAIN; n++) {
        if (from->dtype != t->x->dtype)
            return NULL;
        row_major(from, &a);
        if (from->ndim == t->x->ndim && look_through(chain, n, &a, &b) &&
            same_layout(&a, &b)) {
            spaced(from, &a);
            if ((look_through(chain, n, &a, &b) && same_layout(&a, &b)) ||
                may_replace(s, t, from))
                return from;
        }
        if (!is_recipe(s, from) || !is_view(from) || from->op->view == NULL)
            return NULL;
        chain[n] = from;
        from = from->in[0];
    }
    return NULL;
}

/* ---- common subexpressions
 * -------------------------------------------------------- */

/* The bits of an input that is one number, wherever that came from: how it
 * lies is nothing to an elementwise operator. */
static const void *
number_in(const mr_array *x, int i)
{
    return x->op->fuse.kind == MR_FUSE_ELEMENTWISE ? mr__fuse_constant(x->in[i])
                                                   : NULL;
}

static uint64_t
hash_of(const mr_array *x)
{
    uint64_t h = mr__hash_u64((uintptr_t)x->op ^ x->stream);

    for (int i = 0; i < x->n_in; i++) {
        const void *bits = number_in(x, i);
        int64_t size = mr__dtype_size((mr_dtype)x->in[i]->dtype);

        h = bits != NULL ? mr__hash_bytes(h, bits, (size_t)size)
                         : mr__hash_u64(h ^ (uintptr_t)x->in[i]);
    }
    return x->params == NULL ? h : mr__params_hash(x->op, x->params, h);
}

static bool
same_inputs(const mr_array *a, const mr_array *b)
{
    for (int i = 0; i < a->n_in; i++) {
        const void *p, *q;

        if (a->in[i] == b->in[i])
            continue;
        p = number_in(a, i);
        q = number_in(b, i);
        if (p == NULL || q == NULL || a->in[i]->dtype != b->in[i]->dtype ||
            memcmp(p, q, (size_t)mr__dtype_size((mr_dtype)a->in[i]->dtype)) !=
                0)
            return false;
    }
    return true;
}

static bool
is_same(const mr_array *a, const mr_array *b)
{
    return a->op == b->op && a->stream == b->stream && a->dtype == b->dtype &&
           a->n_in == b->n_in && a->ndim == b->ndim &&
           memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0 &&
           same_inputs(a, b) && (a->params == NULL) == (b->params == NULL) &&
           (a->params == NULL || mr__params_equal(a->op, a->params, b->params));
}

/* The one before it that is the same, else itself. */
static mr_array *
common(simplifier *s, item *t, mr_array *y)
{
    item **list;

    t->now = y;
    if (!t->depends || !is_recipe(s, y) || y->op->exec != NULL)
        return y;
    t->hash = hash_of(y);
    list = &s->table[t->hash & s->mask];
    for (const item *o = *list; o != NULL; o = o->next_same)
        if (o->hash == t->hash && is_same(o->now, y)) {
            s->facts->same += o->now != y;
            return o->now;
        }
    t->next_same = *list;
    *list = t;
    return y;
}

/* ---- one node
 * --------------------------------------------------------------------- */

static mr_array *
rebuilt(const mr_array *x, mr_array *const *in)
{
    for (int i = 0; i < x->n_in; i++)
        if (in[i] != x->in[i])
            return x->op == &mr__op_output
                       ? mr__node_output(
                             in[0],
                             (int)((const mr_output_params *)mr__params(x))
                                 ->index)
                       : mr__node_like(x, in);
    return (mr_array *)(uintptr_t)x; /* as the trace has it */
}

static mr_array *
simpler(simplifier *s, const item *t, mr_array *const *in, bool *failed)
{
    const mr_array *x = t->x;
    mr_array *y;

    if ((x->op->flags & MR_FLAG_IDENTITY) && x->n_in == 1)
        return in[0];
    y = mr__rule_apply(x, in, failed);
    if (y != NULL && may_replace(s, t, y)) {
        s->facts->algebra++;
        return y;
    }
    if (*failed)
        return NULL;
    y = undone(s, t, in);
    s->facts->views += y != NULL;
    return y;
}

static bool
replace(simplifier *s, item *t)
{
    mr_array *few[8], **in = few, *y;
    const mr_array *x = t->x;
    bool failed = false;

    if (!is_recipe(s, x))
        return true;
    if (x->n_in > 8 &&
        (in = mr__arena_alloc(&s->arena, (size_t)x->n_in * sizeof *in)) == NULL)
        return false;
    for (int i = 0; i < x->n_in; i++)
        in[i] = item_of(s, x->in[i])->now;
    mr__ctx.site = x->site;
    mr__ctx.stream = x->stream;
    if (t->depends) {
        y = simpler(s, t, in, &failed);
        if (y == NULL && !failed)
            y = rebuilt(x, in);
    } else { /* others may have it too: it is evaluated as it is */
        y = fold(s, t, in, &failed);
        if (y == NULL && !failed)
            y = t->x;
    }
    if (y == NULL || !mr__vec_push(&s->made, y))
        return false;
    mr__retain(y);
    t->now = common(s, t, y);
#ifndef NDEBUG
    mr__verify_same(x, t->now);
#endif
    return true;
}

/* ---- all of it
 * -------------------------------------------------------------------- */

static bool
table_new(simplifier *s)
{
    s->mask = 15;
    while (s->mask < s->order.n)
        s->mask = 2 * s->mask + 1;
    s->table = mr__arena_zero(&s->arena, (s->mask + 1) * sizeof *s->table);
    return s->table != NULL;
}

static bool
replace_all(simplifier *s, mr_array **outs, int n_outs)
{
    const char *site = mr__ctx.site;
    uint32_t stream = mr__ctx.stream;
    uint64_t trace = mr__ctx.trace;
    bool ok = true;

    mr__ctx.trace = s->trace; /* what is made belongs to it as well */

    for (int k = 0; k < n_outs && ok; k++)
        ok = walk(s, outs[k]);
    ok = ok && table_new(s);
    if (ok)
        find_laid_out(s);
    for (size_t i = 0; ok && i < s->order.n; i++) {
        const item *t = s->order.v[i];

        s->facts->before += t->depends && !(t->x->flags & MR_NODE_PLACEHOLDER);
        ok = replace(s, s->order.v[i]);
    }
    for (int k = 0; ok && k < n_outs; k++)
        outs[k] = item_of(s, outs[k])->now;
    mr__ctx.site = site;
    mr__ctx.stream = stream;
    mr__ctx.trace = trace;
    return ok;
}

mr_code
mr__simplify(mr_array **outs, int n_outs, mr_simplified *facts)
{
    simplifier s = {.facts = facts, .fuses = mr__device_host()->fuses};
    bool ok;

    *facts = (mr_simplified){0};
    /* the checking mode names operators as they were written */
    if (n_outs == 0 || mr__checking() ||
        mr__compile_mode() == MR_COMPILE_NO_SIMPLIFY)
        return MR_OK;
    s.trace = outs[0]->trace;
    ok = replace_all(&s, outs, n_outs);
    for (size_t i = 0; i < s.made.n; i++)
        mr__release(s.made.v[i]);
    mr__arena_free(&s.arena);
    mr__map_free(&s.item);
    mr__vec_free(&s.order);
    mr__vec_free(&s.stack);
    mr__vec_free(&s.made);
    return ok ? MR_OK : mr__error_code();
}
