/* SPDX-License-Identifier: Apache-2.0
 *
 * tape.c -- recording what a shapeless trace did.
 *
 * Values.  An array on the tape has a number: the placeholders first, then
 * what the steps gave, in order.  In a recorded argument a number n stands as
 * the odd address 2n + 1; any other array is a constant, which the tape keeps.
 * A door may give one of its arguments back (a reshape to the shape that
 * there is); at other sizes it would not, so its result gets an identity of
 * its own, a view.
 *
 * Sizes are steps too (size.c), so a size is known before a step that uses it.
 *
 * Called by: the front doors, transforms, compile/trace.c.
 */
#include "graph/tape.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"
#include "graph/op.h"
#include "graph/tape_steps.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/scope.h"
#include "marram/tree.h"

/* ---- recording ------------------------------------------------------------
 */

mr_tape *
mr__tape_new(void)
{
    mr_tape *t = mr__alloc_zero(sizeof *t);

    if (t != NULL)
        t->serial = mr__size_serial();
    return t;
}

static void
drop_values(mr_tape *t)
{
    for (size_t i = 0; i < t->values.n; i++)
        mr__release(t->values.v[i]);
    t->values.n = 0;
}

void
mr__tape_free(mr_tape *t)
{
    if (t == NULL)
        return;
    drop_values(t);
    for (size_t i = 0; i < t->consts.n; i++)
        mr__release(t->consts.v[i]);
    for (size_t i = 0; i < t->trees.n; i++)
        mr_tree_release(t->trees.v[i]);
    mr__vec_free(&t->trees);
    mr__vec_free(&t->values);
    mr__vec_free(&t->consts);
    mr__vec_free(&t->steps);
    mr__vec_free(&t->sizes);
    mr__map_free(&t->number);
    mr__arena_free(&t->arena);
    mr__dealloc(t);
}

void
mr__tape_freeze(mr_tape *t, const char *why)
{
    if (t->frozen == NULL)
        t->frozen = why;
}

const char *
mr__tape_frozen(const mr_tape *t)
{
    return t->frozen;
}

size_t
mr__tape_bytes(const mr_tape *t)
{
    return sizeof *t + mr__arena_bytes(&t->arena) +
           (t->steps.cap + t->consts.cap + t->sizes.cap) * sizeof(void *);
}

/* x is the next value. */
static bool
add_value(mr_tape *t, mr_array *x)
{
    if (!mr__vec_push(&t->values, x))
        return false;
    mr__retain(x);
    return mr__map_put(&t->number, x, (void *)(uintptr_t)(t->values.n));
}

bool
mr__tape_open(mr_tape *t, mr_array *const *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!add_value(t, x[i]))
            return false;
    t->depth = mr__ctx.trace_depth;
    mr__ctx.tape = t;
    return true;
}

/* Can a step be recorded: not inside a transform of its own. */
bool
mr__tape_is_open(const mr_tape *t)
{
    return t != NULL && t->sizes.n < MR_TAPE_MAX_SIZES && t->frozen == NULL &&
           t->depth == mr__ctx.trace_depth;
}

int64_t
mr__tape_number(const mr_tape *t, const mr_array *x)
{
    return (int64_t)(uintptr_t)mr__map_get(&t->number, x) - 1;
}

/* x as the tape has it: a number, or a constant; NULL when it is neither, or
 * there is no memory. */
static mr_array *
array_kept(mr_tape *t, mr_array *x)
{
    int64_t i = x == NULL || x == MR_NONE ? -1 : mr__tape_number(t, x);

    if (i >= 0)
        return (mr_array *)(uintptr_t)(2 * i + 1);
    if (x == NULL || x == MR_NONE)
        return x;
    if (mr__state(x) == MR_NEW && mr__trace_live(x->trace)) {
        mr__tape_freeze(
            t, "an array comes from a transform or from outside its trace");
        return NULL;
    }
    if (!mr__vec_push(&t->consts, x))
        return NULL;
    return mr__retain(x);
}

static const void *
copied(mr_arena *a, const void *p, size_t bytes)
{
    void *q = p == NULL ? NULL : mr__arena_alloc(a, bytes + 1);

    if (q != NULL && bytes > 0)
        memcpy(q, p, bytes);
    return q;
}

/* All kinds of lists begin alike. */
_Static_assert(offsetof(mr_shape, n) == offsetof(mr_ints, n) &&
                   sizeof(mr_shape) == sizeof(mr_ints),
               "shapes are read as lists of integers");

/* One argument, in place: what it points to becomes the tape's. */
static bool
keep_argument(mr_tape *t, const mr_tape_arg *arg, char *given)
{
    char *at = given + arg->at;

    switch (arg->kind) {
    case MR_TAPE_ARRAY: {
        mr_array **x = (mr_array **)(void *)at;

        *x = array_kept(t, *x);
        return *x != NULL;
    }
    case MR_TAPE_ARRAYS: {
        mr_array **const *list = (mr_array * *const *)(void *)at;
        int n = *(const int *)(const void *)(given + arg->count);
        mr_array **own =
            mr__arena_alloc(&t->arena, (size_t)(n + 1) * sizeof *own);

        for (int i = 0; own != NULL && i < n; i++)
            if ((own[i] = array_kept(t, (*list)[i])) == NULL)
                return false;
        memcpy(at, &own, sizeof own);
        return own != NULL;
    }
    case MR_TAPE_INTS: {
        mr_ints *v = (mr_ints *)(void *)at;
        bool some = v->n > 0;

        v->v =
            some ? copied(&t->arena, v->v, (size_t)v->n * sizeof *v->v) : NULL;
        return v->v != NULL || !some;
    }
    case MR_TAPE_AXES: {
        mr_axes *v = (mr_axes *)(void *)at;
        bool some = v->n > 0;

        v->axis =
            some ? copied(&t->arena, v->axis, (size_t)v->n * sizeof *v->axis)
                 : NULL;
        return v->axis != NULL || !some;
    }
    case MR_TAPE_TEXT: {
        const char **s = (const char **)(void *)at;
        bool some = *s != NULL;

        *s = copied(&t->arena, *s, some ? strlen(*s) + 1 : 0);
        return *s != NULL || !some;
    }
    case MR_TAPE_PLAIN:
    case MR_TAPE_INT:
    case MR_TAPE_FLOAT:
    case MR_TAPE_SCALAR:
        break;
    }
    return true;
}

mr_tape_step *
mr__tape_step(mr_tape *t, mr_tape_step_kind kind)
{
    mr_tape_step *s = mr__arena_zero(&t->arena, sizeof *s);

    if (s == NULL || !mr__vec_push(&t->steps, s))
        return NULL;
    s->kind = kind;
    return s;
}

/* The call, as it was given.  False: no memory, or it cannot be recorded. */
static bool
record(mr_tape *t, const mr_tape_door *d, const char *site, const void *given,
       int n_out)
{
    char *own = mr__arena_alloc(&t->arena, (size_t)d->bytes + 1);
    mr_tape_step *s;

    if (own == NULL)
        return false;
    if (d->bytes > 0)
        memcpy(own, given, d->bytes);
    for (int i = 0; i < d->n_args; i++)
        if (!keep_argument(t, &d->arg[i], own))
            return false;
    s = mr__tape_step(t, STEP_CALL);
    if (s == NULL)
        return false;
    s->door = d;
    s->site = mr__ctx.site != NULL ? mr__ctx.site : site;
    s->stream = mr__ctx.stream;
    s->given = own;
    s->n_out = n_out;
    return true;
}

/* ---- arguments with sizes and arrays as they are now -----------------------
 */

mr_array *
mr__tape_array(const mr_filling *f, mr_array *x)
{
    return f->value != NULL && ((uintptr_t)x & 1) ? f->value[(uintptr_t)x >> 1]
                                                  : x;
}

static int64_t
int_of(const mr_sizes *s, int64_t v)
{
    return mr__size_now(s, mr__size_integer(v)).as.i;
}

static bool
fill_argument(const mr_filling *f, const mr_tape_arg *arg, char *given)
{
    char *at = given + arg->at;

    switch (arg->kind) {
    case MR_TAPE_ARRAY: {
        mr_array **x = (mr_array **)(void *)at;

        *x = mr__tape_array(f, *x);
        break;
    }
    case MR_TAPE_ARRAYS: {
        mr_array *const *list = *(mr_array *const *const *)(void *)at;
        int n = *(const int *)(const void *)(given + arg->count);
        mr_array **own;

        if (f->value == NULL)
            break;
        own = mr__arena_alloc(f->arena, (size_t)(n + 1) * sizeof *own);
        if (own == NULL)
            return false;
        for (int i = 0; i < n; i++)
            own[i] = mr__tape_array(f, list[i]);
        memcpy(at, &own, sizeof own);
        break;
    }
    case MR_TAPE_INT: {
        int64_t *v = (int64_t *)(void *)at;

        *v = int_of(&f->sizes, *v);
        break;
    }
    case MR_TAPE_INTS: {
        mr_ints *v = (mr_ints *)(void *)at;
        int64_t *own;

        if (v->n <= 0 || v->v == NULL)
            break;
        own = mr__arena_alloc(f->arena, (size_t)v->n * sizeof *own);
        if (own == NULL)
            return false;
        for (int64_t i = 0; i < v->n; i++)
            own[i] = int_of(&f->sizes, v->v[i]);
        v->v = own;
        break;
    }
    case MR_TAPE_FLOAT: {
        double *v = (double *)(void *)at;
        mr_scalar now = mr__size_now(&f->sizes, mr__size_real(*v));

        *v = mr__size_double(now);
        break;
    }
    case MR_TAPE_SCALAR: {
        mr_scalar *v = (mr_scalar *)(void *)at;

        *v = mr__size_now(&f->sizes, *v);
        break;
    }
    case MR_TAPE_PLAIN:
    case MR_TAPE_AXES:
    case MR_TAPE_TEXT:
        break;
    }
    return true;
}

/* The door, with its arguments filled in; no tape is open in it. */
void *
mr__tape_call_door(const mr_tape_door *d, const char *site, const void *given,
                   const mr_filling *f)
{
    char *own = mr__arena_alloc(f->arena, (size_t)d->bytes + 1);

    if (own == NULL)
        return NULL;
    if (d->bytes > 0)
        memcpy(own, given, d->bytes);
    for (int i = 0; i < d->n_args; i++)
        if (!fill_argument(f, &d->arg[i], own))
            return NULL;
    return d->call(site, own);
}

/* ---- a call while a tape is open -------------------------------------------
 */

/* x, or a view of it when it has an identity already. */
static mr_array *
own_identity(const mr_tape *t, mr_array *x)
{
    if (mr__tape_number(t, x) < 0 && mr__state(x) == MR_NEW)
        return x;
    return mr__node_new(&mr__op_tracer, NULL, 1, &x);
}

static void *
identify_array(mr_tape *t, mr_array *x)
{
    x = own_identity(t, x);
    return x != NULL && add_value(t, x) ? x : NULL;
}

static void *
identify_tree(mr_tape *t, mr_tree *tree)
{
    int n = mr_tree_n_leaves(tree);
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    mr_tree *out = NULL;
    bool ok = leaf != NULL && mr_tree_leaves(tree, leaf, n) == MR_OK;

    for (int i = 0; ok && i < n; i++) {
        leaf[i] = own_identity(t, leaf[i]);
        ok = leaf[i] != NULL && add_value(t, leaf[i]);
    }
    if (ok)
        out = mr_tree_like(tree, leaf, n);
    mr__dealloc(leaf);
    return out;
}

static void *
call_and_record(mr_tape *t, const mr_tape_door *d, const char *site,
                const void *given, const mr_filling *f)
{
    void *r = mr__tape_call_door(d, site, given, f);
    int n;

    if (r == NULL || t->depth != mr__ctx.trace_depth || t->frozen != NULL)
        return r;
    n = d->gives_tree ? mr_tree_n_leaves(r) : 1;
    if (!record(t, d, site, given, n))
        return mr__error_pending() ? NULL : r;
    return d->gives_tree ? identify_tree(t, r) : identify_array(t, r);
}

/* The result goes from the scope of the call to whoever has results now, as a
 * front door's does. */
static void *
hand_on(mr_scope scope, void *r, bool is_tree)
{
    if (r != NULL && is_tree)
        mr_tree_retain(r);
    else if (r != NULL)
        mr__retain(r);
    mr_scope_end(scope);
    if (r == NULL)
        return NULL;
    return is_tree ? (void *)mr__scope_own_tree(r) : (void *)mr__scope_own(r);
}

void *
mr__tape_call(const mr_tape_door *d, const char *site, const void *given)
{
    mr_tape *t = mr__ctx.tape;
    mr_arena scratch = {0};
    mr_filling f = {{t, NULL}, NULL, &scratch};
    mr_scope scope = mr_scope_begin();
    void *r;

    if (scope.token == 0)
        return NULL;
    mr__ctx.tape = NULL;
    r = call_and_record(t, d, site, given, &f);
    r = hand_on(scope, r, d->gives_tree);
    mr__ctx.tape = t;
    mr__arena_free(&scratch);
    return r;
}

/* ---- transforms while a tape is open ----------------------------------------
 */

/* The structure of a tree over one small stand-in. */
static mr_tree *
structure_of(mr_tape *t, const mr_tree *tree, int n)
{
    mr_array **leaf = mr__alloc_array((size_t)n + 1, sizeof *leaf);
    mr_array *stand_in = mr_bool(false);
    mr_tree *shape = NULL;

    for (int i = 0; leaf != NULL && i < n; i++)
        leaf[i] = stand_in;
    if (leaf != NULL && stand_in != NULL)
        shape = mr_tree_like(tree, leaf, n);
    mr__dealloc(leaf);
    return shape != NULL && mr__vec_push(&t->trees, shape)
               ? mr_tree_retain(shape)
               : NULL;
}

/* In a scope: what makes the structure is temporary. */
static bool
keep_tree(mr_tape *t, const mr_tree *tree, mr_kept_tree *out)
{
    mr_scope s = mr_scope_begin();
    bool ok;

    if (s.token == 0)
        return false;
    out->n = mr_tree_n_leaves(tree);
    out->leaf =
        mr__arena_alloc(&t->arena, (size_t)(out->n + 1) * sizeof *out->leaf);
    out->shape = structure_of(t, tree, out->n);
    ok = out->leaf != NULL && out->shape != NULL &&
         mr_tree_leaves(tree, out->leaf, out->n) == MR_OK;
    for (int i = 0; ok && i < out->n; i++)
        ok = (out->leaf[i] = array_kept(t, out->leaf[i])) != NULL;
    mr_scope_end(s);
    return ok;
}

/* The user's function inside a transform. */
typedef struct nested {
    mr_tape *t;
    mr_fn fn;
    void *ctx;
    bool foreign;            /* fn gives its result away */
    mr_kept_transform *kept; /* NULL: not recorded */
    bool ok;                 /* it was recorded whole */
} nested;

static bool
nested_in(nested *n, const mr_tree *in)
{
    int leaves = mr_tree_n_leaves(in);
    mr_array **leaf = mr__alloc_array((size_t)leaves + 1, sizeof *leaf);
    bool ok = leaf != NULL && mr_tree_leaves(in, leaf, leaves) == MR_OK;

    n->kept->first_in = (int)n->t->values.n;
    for (int i = 0; ok && i < leaves; i++)
        ok = add_value(n->t, leaf[i]);
    mr__dealloc(leaf);
    return ok;
}

static mr_tree *
nested_call(void *ctx, const mr_tree *in)
{
    nested *n = ctx;
    mr_tape *t = n->t;
    uint32_t depth = t->depth;
    mr_tree *out = NULL;

    if (n->kept == NULL || nested_in(n, in)) {
        if (n->kept != NULL)
            t->depth = mr__ctx.trace_depth;
        mr__ctx.tape = t;
        out = n->fn(n->ctx, in);
        mr__ctx.tape = NULL;
        t->depth = depth;
    }
    if (out != NULL && n->kept != NULL && t->frozen == NULL) {
        n->ok = keep_tree(t, out, &n->kept->out);
        n->kept->end = t->steps.n;
        if (!n->ok && t->frozen == NULL) { /* no memory */
            if (n->foreign)
                mr_tree_release(out);
            return NULL;
        }
    }
    return out;
}

/* The step, before its function's own; NULL: it cannot be recorded. */
static mr_kept_transform *
keep_transform(mr_tape *t, const mr_tape_transform *given, mr_tape_step **at)
{
    mr_kept_transform *k = mr__arena_zero(&t->arena, sizeof *k);

    if (k == NULL)
        return NULL;
    k->given = *given;
    k->grad_mode = mr__ctx.grad_mode;
    for (int i = 0; i < 2; i++) {
        size_t bytes = given->n[i] > 0 && given->list[i] != NULL
                           ? (size_t)given->n[i] * sizeof *given->list[i]
                           : 0;

        k->given.tree[i] = NULL;
        k->given.list[i] =
            bytes > 0 ? copied(&t->arena, given->list[i], bytes) : NULL;
        if ((bytes > 0 && k->given.list[i] == NULL) ||
            (given->tree[i] != NULL &&
             !keep_tree(t, given->tree[i], &k->tree[i])))
            return NULL;
    }
    *at = mr__tape_step(t, STEP_TRANSFORM);
    if (*at == NULL)
        return NULL;
    (*at)->given = k;
    (*at)->site = mr__ctx.site;
    (*at)->stream = mr__ctx.stream;
    return k;
}

mr_tree *
mr__tape_call_transform(const mr_tape_transform *given, mr_fn fn, void *ctx,
                        bool foreign)
{
    mr_tape *t = mr__ctx.tape;
    nested n = {t, fn, ctx, foreign, NULL, false};
    mr_scope scope = mr_scope_begin();
    mr_tape_step *at = NULL;
    mr_tree *r;

    if (scope.token == 0)
        return NULL;
    mr__ctx.tape = NULL;
    if (t->frozen == NULL && t->depth == mr__ctx.trace_depth) {
        n.kept = keep_transform(t, given, &at);
    }
    /* neither kept nor frozen: no memory */
    r = n.kept != NULL || t->frozen != NULL || t->depth != mr__ctx.trace_depth
            ? given->call(given, nested_call, &n, foreign)
            : NULL;
    if (r != NULL && n.ok && t->frozen == NULL) {
        at->n_out = mr_tree_n_leaves(r);
        r = identify_tree(t, r);
    } else if (n.kept != NULL && !(n.ok && r != NULL)) {
        mr__tape_freeze(t, "a transform failed");
    }
    r = hand_on(scope, r, true);
    mr__ctx.tape = t;
    return r;
}

void
mr__tape_read(const mr_array *x)
{
    if (mr__ctx.tape != NULL && mr__trace_live(x->trace) &&
        mr__state(x) == MR_NEW)
        mr__tape_freeze(mr__ctx.tape, "a size was read as a plain number");
}

bool
mr__tape_close(mr_tape *t, mr_array *const *out, int n)
{
    bool ok;

    mr__ctx.tape = NULL;
    t->out = mr__arena_alloc(&t->arena, (size_t)(n + 1) * sizeof *t->out);
    ok = t->out != NULL;
    for (int i = 0; ok && t->frozen == NULL && i < n; i++) {
        mr_array *x = array_kept(t, out[i]);

        ok = x != NULL;
        t->out[i] =
            (uintptr_t)x & 1 ? (int)((uintptr_t)x >> 1) : -(int)t->consts.n;
    }
    t->n_out = n;
    t->n_values = (int)t->values.n;
    drop_values(t);
    mr__map_free(&t->number);
    if (!ok && t->frozen == NULL)
        mr__tape_freeze(t, "no memory"); /* and the error says so */
    else
        ok = true;
    return ok;
}
