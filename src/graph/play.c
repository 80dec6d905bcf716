/* SPDX-License-Identifier: Apache-2.0
 *
 * play.c -- doing again what a tape says, over other placeholders.
 *
 * Called by: compile/function.c.  Calls: front doors, transforms, through the
 * tape's tables.
 */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"
#include "graph/tape_steps.h"
#include "marram/tree.h"

/* ---- playing ---------------------------------------------------------------
 */

typedef struct player {
    const mr_tape *t;
    mr_array **value;
    int n_values;
    mr_scalar *size;
    int n_sizes;
    mr_arena scratch;
    bool fits;
} player;

static bool
play_tree(player *p, const mr_tape_step *s, const mr_tree *r)
{
    if (mr_tree_n_leaves(r) != s->n_out) {
        p->fits = false;
        return false;
    }
    if (mr_tree_leaves(r, p->value + p->n_values, s->n_out) != MR_OK)
        return false;
    p->n_values += s->n_out;
    return true;
}

static bool
play_call(player *p, const mr_tape_step *s)
{
    mr_filling f = {{p->t, p->size}, p->value, &p->scratch};
    const char *site = mr__ctx.site;
    uint32_t stream = mr__ctx.stream;
    void *r;

    mr__ctx.site = s->site;
    mr__ctx.stream = s->stream;
    r = mr__tape_call_door(s->door, s->site, s->given, &f);
    mr__ctx.site = site;
    mr__ctx.stream = stream;
    if (r == NULL || s->door->gives_tree)
        return r != NULL && play_tree(p, s, r);
    p->value[p->n_values++] = r;
    return true;
}

static bool play_steps(player *p, size_t from, size_t to);

/* The steps of a transform's function. */
typedef struct played {
    player *p;
    const mr_kept_transform *k;
    size_t from;
} played;

static mr_tree *
tree_now(const player *p, const mr_kept_tree *k)
{
    mr_filling f = {{p->t, p->size}, p->value, NULL};
    mr_array **leaf = mr__alloc_array((size_t)k->n + 1, sizeof *leaf);
    mr_tree *tree = NULL;

    for (int i = 0; leaf != NULL && i < k->n; i++)
        leaf[i] = mr__tape_array(&f, k->leaf[i]);
    if (leaf != NULL)
        tree = mr_tree_like(k->shape, leaf, k->n);
    mr__dealloc(leaf);
    return tree;
}

static mr_tree *
play_function(void *ctx, const mr_tree *in)
{
    played *f = ctx;
    player *p = f->p;
    int n = mr_tree_n_leaves(in);

    assert(p->n_values == f->k->first_in);
    if (mr_tree_leaves(in, p->value + p->n_values, n) != MR_OK)
        return NULL;
    p->n_values += n;
    if (!play_steps(p, f->from, f->k->end))
        return mr__error_pending()
                   ? NULL
                   : mr__fail_null(MR_E_STATE, "another branch is taken");
    return tree_now(p, &f->k->out);
}

static bool
play_transform(player *p, const mr_tape_step *s, size_t from)
{
    const mr_kept_transform *k = s->given;
    played f = {p, k, from};
    mr_tape_transform given = k->given;
    const char *site = mr__ctx.site;
    uint32_t stream = mr__ctx.stream, mode = mr__ctx.grad_mode;
    mr_tree *r = NULL;
    bool ok = true;

    for (int i = 0; ok && i < 2; i++)
        if (k->tree[i].shape != NULL)
            ok = (given.tree[i] = tree_now(p, &k->tree[i])) != NULL;
    mr__ctx.site = s->site;
    mr__ctx.stream = s->stream;
    mr__ctx.grad_mode = k->grad_mode;
    if (ok)
        r = given.call(&given, play_function, &f, false);
    mr__ctx.site = site;
    mr__ctx.stream = stream;
    mr__ctx.grad_mode = mode;
    return r != NULL && play_tree(p, s, r);
}

static bool
play_step(player *p, const mr_tape_step *s, size_t *next)
{
    mr_sizes now = {p->t, p->size};
    mr_scalar v;

    switch (s->kind) {
    case STEP_CALL:
        return play_call(p, s);
    case STEP_TRANSFORM: {
        size_t from = *next;

        *next = ((const mr_kept_transform *)s->given)->end;
        return play_transform(p, s, from);
    }
    case STEP_DIM:
        if (s->axis >= p->value[s->x]->ndim)
            return p->fits = false;
        p->size[p->n_sizes++] = mr__size_integer(p->value[s->x]->dim[s->axis]);
        return true;
    case STEP_MATH:
        if (mr__size_compute(s->op, mr__size_now(&now, s->a),
                             mr__size_now(&now, s->b), &v) != MR_OK)
            return false;
        /* an integer power may become a float: its users took an integer */
        if (v.kind != ((mr_scalar *)p->t->sizes.v[p->n_sizes])->kind)
            return p->fits = false;
        p->size[p->n_sizes++] = v;
        return true;
    case STEP_COMPARE:
        p->fits = mr__size_holds(mr__size_now(&now, s->a), s->relation,
                                 mr__size_now(&now, s->b)) == s->outcome;
        return p->fits;
    }
    return false;
}

static bool
play_steps(player *p, size_t from, size_t to)
{
    for (size_t i = from; i < to;) {
        const mr_tape_step *s = p->t->steps.v[i++];

        if (!play_step(p, s, &i))
            return false;
    }
    return true;
}

static void
play_outputs(const player *p, mr_array **out)
{
    const mr_tape *t = p->t;

    for (int i = 0; i < t->n_out; i++)
        out[i] =
            t->out[i] >= 0 ? p->value[t->out[i]] : t->consts.v[-1 - t->out[i]];
}

bool
mr__tape_play(const mr_tape *t, mr_array *const *x, int n, mr_array **out,
              int n_out, bool *fits)
{
    player p = {.t = t, .fits = true};
    bool ok = n_out == t->n_out && n <= t->n_values;

    *fits = true;
    p.value = mr__alloc_array((size_t)t->n_values + 1, sizeof *p.value);
    p.size = mr__alloc_array(t->sizes.n + 1, sizeof *p.size);
    ok = ok && p.value != NULL && p.size != NULL;
    for (int i = 0; ok && i < n; i++)
        p.value[p.n_values++] = x[i];
    ok = ok && play_steps(&p, 0, t->steps.n);
    if (ok)
        play_outputs(&p, out);
    *fits = p.fits;
    mr__dealloc(p.value);
    mr__dealloc(p.size);
    mr__arena_free(&p.scratch);
    return ok;
}
