/* SPDX-License-Identifier: Apache-2.0
 *
 * fuse.c -- grouping: which nodes run together.
 *
 * Nodes are visited from the last to the first.  A node that no group has
 * pulled yet starts one.  A producer joins a group when each of its uses in the
 * list is a member or in a group made before, which runs later, and its form
 * fits the group's space: so no path from it leaves the group and comes back.
 * What later groups read as well is an output of the group.
 *
 * Reductions.  A group that starts with a reduction takes its operand's shape
 * as space.  Through the broadcast of a reduction's result (a bridge) a group
 * over points reaches the reduction itself: softmax, norms and variances
 * become one pass over rows (phases of the block program).  That is done only
 * where the reduced axes are the last ones and a row stays in cache.
 *
 * Draws.  Random words that only one group reads are made inside of it, where
 * both halves of a stream can be made at once: made one by one they cost twice
 * (mr__fuse_draw_why).
 *
 * Called by: eval.c, compile/.  Calls: graph/, fuse_read.c.
 */
#include "eval/fuse.h"

#include <stddef.h>
#include <string.h>

#include "array/dtype.h"
#include "eval/fuse_group.h"
#include "kernels/draw.h"

mr_k
mr__fuse_k(const mr_array *x)
{
    return (mr_k)x->op->fuse.k;
}

mr_dtype
mr__fuse_operand(const mr_array *x)
{
    /* select's first operand is its condition */
    return (mr_dtype)x->in[x->n_in == 3 ? 1 : 0]->dtype;
}

const void *
mr__fuse_constant(const mr_array *x)
{
    /* Views of a constant are uniform whatever their layout. */
    while (!(x->flags & MR_NODE_SCALAR_CONST)) {
        if (mr__state(x) != MR_NEW || x->op->fuse.kind != MR_FUSE_VIEW ||
            x->n_in != 1)
            return NULL;
        x = x->in[0];
    }
    return mr__scalar_const(x);
}

/* ---- forms ----------------------------------------------------------------
 */

static uint32_t
reduced_mask(const mr_array *x)
{
    const mr_reduce_params *p = mr__params(x);
    const mr_array *a = x->in[0];
    uint32_t mask = 0;

    for (int i = 0; i < a->ndim; i++)
        if ((p->axes >> i & 1) && a->dim[i] != 1)
            mask |= (uint32_t)1 << i;
    return mask;
}

bool
mr__fuse_is_row(const mr_fuse_group *g, const mr_array *x)
{
    int axis = 0;

    for (int i = 0; i < g->ndim && x->ndim == g->ndim; i++)
        if (x->dim[i] != (g->red_axes >> i & 1 ? 1 : g->dim[i]))
            return false;
    if (x->ndim >= g->ndim)
        return x->ndim == g->ndim;
    for (int i = 0; i < g->ndim; i++) {
        if ((g->red_axes >> i & 1) || g->dim[i] == 1)
            continue;
        while (axis < x->ndim && x->dim[axis] == 1)
            axis++;
        if (axis == x->ndim || x->dim[axis++] != g->dim[i])
            return false;
    }
    while (axis < x->ndim && x->dim[axis] == 1)
        axis++;
    return axis == x->ndim;
}

/* A view of values of rows that are in the same order in it. */
static bool
is_row_view(const mr_fuse_group *g, const mr_array *x)
{
    mr_layout in, out;
    int64_t step = 1;

    if (x->op->fuse.kind != MR_FUSE_VIEW || x->n_in != 1 ||
        !mr__fuse_is_row(g, x) || !mr__fuse_is_row(g, x->in[0]))
        return false;
    in.ndim = x->in[0]->ndim;
    in.offset = 0;
    memcpy(in.dim, x->in[0]->dim, (size_t)in.ndim * sizeof *in.dim);
    mr__strides_fresh(in.ndim, in.dim, in.stride);
    if (!x->op->view(x, &in, &out) || out.offset != 0)
        return false;
    for (int i = x->ndim - 1; i >= 0; step *= x->dim[i--])
        if (x->dim[i] != 1 && out.stride[i] != step)
            return false;
    return true;
}

/* The axes along which `from` is broadcast to `to`: 0 when it is not that. */
static uint32_t
bridge_mask(const mr_array *view)
{
    const mr_array *from = view->in[0];
    mr_layout in, out;
    uint32_t mask = 0;

    if (view->op->fuse.kind != MR_FUSE_VIEW || view->n_in != 1 ||
        from->ndim != view->ndim)
        return 0;
    for (int i = 0; i < view->ndim; i++) {
        if (from->dim[i] == view->dim[i])
            continue;
        if (from->dim[i] != 1)
            return 0;
        mask |= (uint32_t)1 << i;
    }
    if (mask == 0)
        return 0;
    in.ndim = from->ndim;
    in.offset = 0;
    memcpy(in.dim, from->dim, (size_t)from->ndim * sizeof *in.dim);
    mr__strides_fresh(in.ndim, in.dim, in.stride);
    if (!view->op->view(view, &in, &out) || out.offset != 0)
        return 0;
    for (int i = 0; i < view->ndim; i++)
        if (out.stride[i] != (mask >> i & 1 ? 0 : in.stride[i]) &&
            view->dim[i] > 1)
            return 0;
    return mask;
}

static bool
is_trailing(uint32_t mask, int32_t ndim, const int64_t *dim)
{
    bool seen_kept = false;

    for (int i = ndim - 1; i >= 0; i--) {
        if (dim[i] == 1)
            continue;
        if (!(mask >> i & 1))
            seen_kept = true;
        else if (seen_kept)
            return false;
    }
    return true;
}

static int64_t
row_length(uint32_t mask, int32_t ndim, const int64_t *dim)
{
    int64_t n = 1;

    for (int i = 0; i < ndim; i++)
        if (mask >> i & 1)
            n *= dim[i];
    return n;
}

static bool
may_phase(const mr_fuse_group *g, uint32_t mask)
{
    /* a reduction over axes of size 1 alone has an empty mask: it is none of
     * the others' */
    if (g->columns)
        return mask != 0 && mask == g->red_axes;
    return mask != 0 &&
           (g->red_axes == mask || (g->red_axes == 0 && !g->has_reduction)) &&
           is_trailing(mask, g->ndim, g->dim) &&
           row_length(mask, g->ndim, g->dim) <= MR_FUSE_MAX_ROW;
}

/* ---- pulling ----------------------------------------------------------------
 */

static bool
fusable(const mr_array *x, mr_fuse_kind kind, mr_fuses_fn fuses)
{
    return x->op->fuse.kind == kind && x->size > 0 &&
           fuses(mr__fuse_k(x), mr__fuse_operand(x));
}

static bool
is_reshape(const mr_array *x)
{
    return x->op->fuse.kind == MR_FUSE_VIEW && x->n_in == 1 &&
           x->in[0]->size == x->size;
}

/* Does the row form n come from a reduction over these axes that could become
 * a member?  Looks a few operators deep: a hint, not a promise. */
static bool
leads_to_reduction(const mr_fuse_node *n, uint32_t mask, mr_fuses_fn fuses,
                   int depth)
{
    if (n == NULL || n->group != NULL)
        return false;
    if (fusable(n->x, MR_FUSE_REDUCTION, fuses))
        return reduced_mask(n->x) == mask;
    if (depth == 0 ||
        (!fusable(n->x, MR_FUSE_ELEMENTWISE, fuses) && !is_reshape(n->x)))
        return false;
    for (int i = 0; i < n->x->n_in; i++)
        if (leads_to_reduction(n->in[i], mask, fuses, depth - 1))
            return true;
    return false;
}

/* ---- groups that end in values of rows ------------------------------------
 */

/* Operators from the one that ends a group down to the reduction of its rows,
 * and the shortest row for which that is looked for: shorter ones are better
 * points of a group over their number. */
#define WAY     5
#define WAY_ROW 16

/* Does the whole of c's uses come from n, and from groups that run later? */
static bool
is_only_below(const mr_fuse_node *n, const mr_fuse_node *c, uint32_t stream)
{
    int32_t uses = c == NULL ? 0 : c->later_uses;

    for (int i = 0; i < n->x->n_in; i++)
        uses += n->in[i] == c;
    if (c == NULL || c->group != NULL || c->x->stream != stream ||
        uses != c->n_uses || c->x->size == 0)
        return false;
    return c->x->op->fuse.kind != MR_FUSE_VIEW ||
           (!c->visible && c->later_uses == 0 && !c->looked_at);
}

static bool
opens_rows(const mr_array *x, int64_t size, mr_fuses_fn fuses)
{
    const mr_array *a = x->in[0];
    uint32_t mask;
    int64_t row;

    if (!fusable(x, MR_FUSE_REDUCTION, fuses))
        return false;
    mask = reduced_mask(x);
    row = row_length(mask, a->ndim, a->dim);
    return mask != 0 && row >= WAY_ROW && row <= MR_FUSE_MAX_ROW &&
           x->size == size && is_trailing(mask, a->ndim, a->dim);
}

/* way[at] and what it reads, down to a reduction along rows of which way[0] has
 * a value each: how many nodes, or 0. */
static int
way_to_rows(mr_fuse_node **way, int at, mr_fuses_fn fuses)
{
    mr_fuse_node *n = way[at];
    int found;

    if (at > 0 && opens_rows(n->x, way[0]->x->size, fuses))
        return at + 1;
    if (at + 1 == WAY ||
        (!fusable(n->x, MR_FUSE_ELEMENTWISE, fuses) && !is_reshape(n->x)))
        return 0;
    for (int i = 0; i < n->x->n_in; i++) {
        if (!is_only_below(n, n->in[i], way[0]->x->stream))
            continue;
        way[at + 1] = n->in[i];
        found = way_to_rows(way, at + 1, fuses);
        if (found > 0)
            return found;
    }
    return 0;
}

/* The same for the space that the reduction opens, which is set in g: all are
 * values of its rows. */
static int
rows_below(mr_fuse_group *g, mr_fuse_node **way, mr_fuses_fn fuses)
{
    int k = way_to_rows(way, 0, fuses);
    const mr_array *x = k == 0 ? NULL : way[k - 1]->x;

    if (k == 0)
        return 0;
    g->ndim = x->in[0]->ndim;
    g->dim = x->in[0]->dim;
    g->red_axes = reduced_mask(x);
    for (int i = 0; i < k; i++)
        if (is_reshape(way[i]->x) ? !is_row_view(g, way[i]->x)
                                  : !mr__fuse_is_row(g, way[i]->x))
            return 0;
    return k;
}

/* Is n better the end of a group of its own, over the rows of a reduction? */
static bool
ends_rows(mr_fuse_node *n, mr_fuses_fn fuses)
{
    mr_fuse_node *way[WAY] = {n};
    mr_fuse_group rows;

    return rows_below(&rows, way, fuses) > 0;
}

/* Reductions of columns take of their producers what becomes a sum of squares
 * of x - c: its values are never stored. */
static bool
fits_columns(const mr_array *x)
{
    mr_k k = mr__fuse_k(x);

    return x->op->fuse.kind != MR_FUSE_ELEMENTWISE || k == MR_K_SQUARE ||
           k == MR_K_SUBTRACT || k == MR_K_CAST;
}

/* A block of the generator gives two words, half a stream apart: made one
 * without the other they cost twice.  Both are made at once where a tile has
 * all of a stream, or where the stream can be halved along one dim. */
static bool
has_halves(const mr_array *x)
{
    int d = x->in[0]->ndim - 1;

    while (d < x->ndim && x->dim[d] == 1)
        d++;
    if (d == x->ndim || x->dim[d] % 2 == 0)
        return true;
    for (d++; d < x->ndim; d++)
        if (x->dim[d] != 1)
            return false;
    return true;
}

/* Words of rows that are reduced.  A row that is all of a stream has both
 * halves; else they are made for two rows at a time. */
static const char *
draw_of_rows_why(const mr_array *x, uint32_t red_axes, bool again)
{
    int64_t points = row_length(red_axes, x->ndim, x->dim);
    int d = x->in[0]->ndim - 1;

    if (!is_trailing(red_axes, x->ndim, x->dim))
        return "it reduces leading axes, which is faster from memory";
    if (d > 0 && (red_axes & 1) && x->dim[0] > 1)
        return "it reduces over the axis of their keys";
    while (d < x->ndim && x->dim[d] == 1)
        d++;
    if (d == x->ndim || (red_axes >> d & 1)) {
        if (points <= MR_DRAW_ROW)
            return NULL;
        if (again)
            return "it goes over long rows again, and would make them again";
        return points % (2 * MR_RED_BLOCK) != 0 && points < MR_DRAW_UNEVEN
                   ? "the row is long, and its halves are no whole blocks"
                   : NULL;
    }
    if (x->size > MR_FUSE_FEW_WORDS && x->dim[d] % 2 != 0)
        return "their first axis is odd: their halves do not lie alike";
    if (points > MR_DRAW_ROW)
        return "its rows are long, and words are made for two at a time";
    return NULL;
}

const char *
mr__fuse_draw_why(const mr_array *x, bool reduces, uint32_t red_axes,
                  bool again)
{
    if (x->in[0]->ndim > 2)
        return "their keys have several axes";
    if (mr__fuse_constant(x->in[0]) != NULL)
        return "their key is one number, seen twice";
    if (x->size > MR_FUSE_FEW_WORDS && mr__dtype_size((mr_dtype)x->dtype) != 4)
        return "they are no whole words";
    if (reduces)
        return draw_of_rows_why(x, red_axes, again);
    if (x->size > MR_FUSE_FEW_WORDS && !has_halves(x))
        return "their first axis is odd: their halves do not lie alike";
    return NULL;
}

static bool
draw_fits(const mr_fuse_group *g, const mr_fuse_node *n)
{
    return g->n_draws < MR_FUSE_MAX_DRAWS && !n->visible &&
           mr__fuse_has_shape(n->x, g->ndim, g->dim) && !g->columns &&
           (g->has_reduction || g->phased ||
            mr__fuse_draw_why(n->x, false, 0, false) == NULL);
}

/* The role n would have in g; false when it cannot be a member. */
static bool
can_pull(mr_fuse_group *g, mr_fuse_node *n, mr_fuses_fn fuses,
         mr_fuse_role *role, uint32_t *mask)
{
    const mr_array *x = n->x;

    *mask = g->red_axes;
    if (x->stream != g->root->x->stream || (g->columns && !fits_columns(x)))
        return false;
    if (fusable(x, MR_FUSE_ELEMENTWISE, fuses)) {
        if (mr__fuse_has_shape(x, g->ndim, g->dim)) {
            *role = MR_ROLE_POINT;
            return g->root->role != MR_ROLE_REDUCE || !ends_rows(n, fuses);
        }
        /* a row is an output only where rows exist for sure */
        *role = MR_ROLE_ROW;
        return g->phased && mr__fuse_is_row(g, x) &&
               (!n->visible || g->has_reduction);
    }
    if ((x->op->flags & MR_FLAG_IDENTITY) && x->n_in == 1 && n->in[0] != NULL) {
        *role = MR_ROLE_ALIAS;
        return mr__fuse_has_shape(x, g->ndim, g->dim) && !n->visible;
    }
    if (fusable(x, MR_FUSE_REDUCTION, fuses)) {
        *role = MR_ROLE_REDUCE;
        *mask = reduced_mask(x);
        return g->phased && *mask == g->red_axes && mr__fuse_is_row(g, x) &&
               mr__fuse_has_shape(x->in[0], g->ndim, g->dim);
    }
    if (x->op->fuse.kind == MR_FUSE_DRAW) {
        *role = MR_ROLE_DRAW;
        return draw_fits(g, n);
    }
    if (g->phased && !n->visible && n->in[0] != NULL && is_row_view(g, x)) {
        *role = MR_ROLE_ALIAS;
        return true;
    }
    if (x->op->fuse.kind == MR_FUSE_VIEW && x->n_in == 1 && !n->visible &&
        n->in[0] != NULL && mr__fuse_has_shape(x, g->ndim, g->dim)) {
        *role = MR_ROLE_BRIDGE;
        *mask = bridge_mask(x);
        return may_phase(g, *mask) &&
               leads_to_reduction(n->in[0], *mask, fuses, 6);
    }
    return false;
}

/* ---- members
 * ------------------------------------------------------------------
 */

static int
ext_find(const mr_fuse_group *g, const mr_array *x)
{
    for (int i = 0; i < g->n_ext; i++)
        if (g->ext[i] == x)
            return i;
    return -1;
}

/* Inputs from outside that n would add beyond those known. */
static int
ext_new(const mr_fuse_group *g, const mr_fuse_node *n)
{
    int k = 0;

    for (int i = 0; i < n->x->n_in; i++)
        if (ext_find(g, n->x->in[i]) < 0 &&
            mr__fuse_constant(n->x->in[i]) == NULL)
            k++;
    return k;
}

static void
ext_update(mr_fuse_group *g, const mr_fuse_node *n)
{
    int at = ext_find(g, n->x);

    if (at >= 0)
        g->ext[at] = g->ext[--g->n_ext];
    for (int i = 0; i < n->x->n_in; i++)
        if (ext_find(g, n->x->in[i]) < 0 &&
            mr__fuse_constant(n->x->in[i]) == NULL)
            g->ext[g->n_ext++] = n->x->in[i];
}

static bool
has_room(const mr_fuse_group *g, const mr_fuse_node *n)
{
    return g->n_members < MR_FUSE_MAX_MEMBERS &&
           g->n_ext + ext_new(g, n) <= MR_FUSE_MAX_IN &&
           g->n_out < MR_FUSE_MAX_OUT;
}

void
mr__fuse_add(mr_fuse_group *g, mr_fuse_node *n, mr_fuse_role role)
{
    n->group = g;
    n->role = role;
    n->next_member = g->member;
    g->member = n;
    g->n_members++;
    if (n->visible)
        g->n_out++;
    if (role == MR_ROLE_REDUCE)
        g->has_reduction = true;
    if (role == MR_ROLE_DRAW)
        g->n_draws++;
    ext_update(g, n);
}

int32_t
mr__fuse_uses(const mr_fuse_group *g, const mr_fuse_node *n)
{
    int32_t uses = 0;

    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        for (int i = 0; i < m->x->n_in; i++)
            uses += m->in[i] == n;
    return uses;
}

/* ---- draws ----------------------------------------------------------------
 */

/* Are the points gone over again behind a reduction? */
static bool
goes_again(const mr_fuse_group *g)
{
    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        if (m->role == MR_ROLE_BRIDGE ||
            (m->role == MR_ROLE_REDUCE && mr__fuse_k(m->x) == MR_R_LOGSUMEXP))
            return true;
    return false;
}

/* The group is whole but for the product that it follows: draws that it cannot
 * have after all become kernels of their own. */
static void
draws_leave(mr_fuse_group *g)
{
    bool again = g->n_draws > 0 && goes_again(g);
    mr_fuse_node **at = &g->member;

    while (*at != NULL && g->n_draws > 0) {
        mr_fuse_node *m = *at;

        if (m->role != MR_ROLE_DRAW ||
            mr__fuse_draw_why(m->x, g->has_reduction, g->red_axes, again) ==
                NULL) {
            at = &m->next_member;
            continue;
        }
        *at = m->next_member;
        m->group = NULL;
        m->role = MR_ROLE_POINT;
        g->n_members--;
        g->n_draws--;
    }
}

/* ---- all members
 * ------------------------------------------------------------------
 */

/* Can n be a member?  What later groups read becomes an output; a view that
 * they read stays one, and what it looks at becomes an output. */
static bool
pull(mr_fuse_group *g, mr_fuse_node *n, mr_fuses_fn fuses, mr_fuse_role *role,
     uint32_t *mask)
{
    bool later = n->later_uses > 0 || n->looked_at, seen = n->visible;
    bool view = n->x->op->fuse.kind == MR_FUSE_VIEW;

    n->visible = seen || (later && !view);
    if (!can_pull(g, n, fuses, role, mask) || !has_room(g, n)) {
        n->visible = seen;
        return false;
    }
    if (later && view)
        n->shared = n->in[0]->looked_at = true;
    return true;
}

/* May it be a gather, or a view of one? */
static bool
leads_to_gather(const mr_fuse_node *n)
{
    return n->x->op->gather != NULL || n->x->op->fuse.kind == MR_FUSE_VIEW;
}

/* Pull producers until none fits.  `work` is a stack of members whose inputs
 * have not been looked at. */
static bool
pull_all(mr_arena *arena, mr_fuse_group *g, mr_fuses_fn fuses,
         mr_fuse_mode mode)
{
    mr_fuse_node **work =
        mr__arena_alloc(arena, MR_FUSE_MAX_MEMBERS * sizeof *work);
    int n_work = 0;
    bool failed = false;

    if (work == NULL)
        return false;
    for (mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        work[n_work++] = m;
    while (n_work > 0) {
        mr_fuse_node *m = work[--n_work];

        for (int i = 0; i < m->x->n_in; i++) {
            mr_fuse_node *n = m->in[i];
            mr_fuse_role role;
            uint32_t mask;

            if (n == NULL || n->group != NULL)
                continue;
            if (mode == MR_FUSE_ALL && leads_to_gather(n) &&
                mr__fuse_gather(arena, g, m, n, &failed))
                continue;
            if (failed)
                return false;
            if (n->candidate != g) {
                n->candidate = g;
                n->candidate_uses = 0;
            }
            if (++n->candidate_uses + n->later_uses < n->n_uses)
                continue;
            if ((n->x->op->fuse.kind == MR_FUSE_DRAW && mode != MR_FUSE_ALL) ||
                !pull(g, n, fuses, &role, &mask))
                continue;
            if (role == MR_ROLE_BRIDGE) {
                g->phased = true;
                g->red_axes = mask;
            }
            mr__fuse_add(g, n, role);
            if (role != MR_ROLE_DRAW)
                work[n_work++] = n;
        }
    }
    draws_leave(g);
    return true;
}

/* ---- what follows a product
 * ------------------------------------------------------ */

/* A kernel whose result has the group's shape, and that nobody reads who runs
 * before the group does. */
static bool
may_follow(const mr_fuse_group *g, const mr_fuse_node *n,
           const mr_fuse_rules *rules)
{
    return n != NULL && n->group == NULL &&
           n->x->op->fuse.kind == MR_FUSE_NONE && n->x->op->exec == NULL &&
           !(n->x->flags & MR_NODE_TUPLE) &&
           n->x->stream == g->root->x->stream &&
           mr__fuse_has_shape(n->x, g->ndim, g->dim) &&
           mr__fuse_uses(g, n) + n->later_uses == n->n_uses &&
           rules->joins(rules->ctx, n->x);
}

/* The group is whole but for that: the first that fits, as the members stand.
 * One is enough: a second would have to be in memory before the first begins.
 * What reads through an index reads any place, and joins nothing; nor does what
 * makes random words, in pairs half a result apart: it would have to wait for
 * all of the product, and brings that near while it makes them. */
static void
join_product(mr_fuse_group *g, const mr_fuse_rules *rules)
{
    if (rules->joins == NULL || g->has_reduction || g->columns ||
        g->n_gathers > 0 || g->n_draws > 0 || g->ndim < 1 ||
        g->n_members == MR_FUSE_MAX_MEMBERS)
        return;
    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        for (int i = 0; i < m->x->n_in; i++) {
            mr_fuse_node *n = m->in[i];

            if (!may_follow(g, n, rules))
                continue;
            n->visible = n->visible || n->later_uses > 0 || n->looked_at;
            n->group = g;
            n->role = MR_ROLE_POINT;
            g->product = n;
            g->n_members++;
            return;
        }
}

/* ---- groups
 * ------------------------------------------------------------------ */

static mr_group_kind
kind_of(const mr_array *x, mr_fuses_fn fuses)
{
    if (fusable(x, MR_FUSE_ELEMENTWISE, fuses) ||
        fusable(x, MR_FUSE_REDUCTION, fuses))
        return MR_GROUP_BLOCK;
    if (x->op->fuse.kind == MR_FUSE_VIEW || x->op == &mr__op_output)
        return MR_GROUP_VIEW;
    return MR_GROUP_KERNEL;
}

/* A group over the rows of a reduction that n's values come from, with the
 * operators between; false: there is none. */
static bool
start_at_rows(mr_fuse_group *g, mr_fuse_node *n, mr_fuses_fn fuses)
{
    mr_fuse_node *way[WAY] = {n};
    mr_fuse_group rows;
    int k = rows_below(&rows, way, fuses);

    if (k == 0)
        return false;
    g->ndim = rows.ndim;
    g->dim = rows.dim;
    g->red_axes = rows.red_axes;
    g->phased = true;
    n->role = MR_ROLE_ROW;
    ext_update(g, n);
    for (int i = 1; i < k; i++) {
        bool view = is_reshape(way[i]->x);

        if (!view && (way[i]->later_uses > 0 || way[i]->looked_at))
            way[i]->visible = true;
        mr__fuse_add(g, way[i],
                     i == k - 1 ? MR_ROLE_REDUCE
                     : view     ? MR_ROLE_ALIAS
                                : MR_ROLE_ROW);
    }
    return true;
}

static mr_fuse_group *
group_start(mr_arena *arena, mr_fuse_node *n, mr_fuses_fn fuses,
            mr_fuse_mode mode)
{
    mr_fuse_group *g = mr__arena_alloc(arena, sizeof *g);
    const mr_array *x = n->x;

    if (g == NULL)
        return NULL;
    memset(g, 0, offsetof(mr_fuse_group, ext));
    g->next = NULL;
    g->kind = kind_of(x, fuses);
    g->root = g->member = n;
    n->next_member = NULL;
    n->group = g;
    n->role = MR_ROLE_POINT;
    g->n_members = 1;
    g->n_out = 1;
    if (g->kind != MR_GROUP_BLOCK)
        return g;
    g->ndim = x->ndim;
    g->dim = x->dim;
    if (mode != MR_FUSE_OFF && x->op->fuse.kind == MR_FUSE_ELEMENTWISE &&
        start_at_rows(g, n, fuses))
        return g;
    if (x->op->fuse.kind == MR_FUSE_REDUCTION) {
        n->role = MR_ROLE_REDUCE;
        g->has_reduction = true;
        g->ndim = x->in[0]->ndim;
        g->dim = x->in[0]->dim;
        g->red_axes = reduced_mask(x);
        g->phased = may_phase(g, g->red_axes);
        /* 64 lanes a column leave little room for the producers' values: most
         * are cheaper written down first */
        g->columns = !is_trailing(g->red_axes, g->ndim, g->dim);
    }
    ext_update(g, n);
    return g;
}

/* The group is whole: what it reads from outside has a reader that runs later
 * than all groups to come. */
static void
count_later_uses(const mr_fuse_group *g)
{
    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        for (int i = 0; i < m->x->n_in; i++)
            if (m->in[i] != NULL && m->in[i]->group != g)
                m->in[i]->later_uses++;
}

/* Members in topological order: the list is walked once, backwards. */
static void
link_members(mr_fuse_node *const *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        nodes[i]->group->member = NULL;
    for (size_t i = n; i-- > 0;) {
        mr_fuse_group *g = nodes[i]->group;

        nodes[i]->next_member = g->member;
        g->member = nodes[i];
    }
}

mr_fuse_group *
mr__fuse(mr_arena *arena, mr_fuse_node *const *nodes, size_t n,
         const mr_fuse_rules *rules)
{
    mr_fuse_group *first = NULL;

    for (size_t i = 0; i < n; i++) {
        nodes[i]->group = NULL;
        nodes[i]->candidate = NULL;
        nodes[i]->later_uses = 0;
        nodes[i]->shared = nodes[i]->looked_at = nodes[i]->of_row = false;
        nodes[i]->adds = false;
        nodes[i]->index = NULL;
    }
    for (size_t i = n; i-- > 0;) {
        mr_fuse_group *g;

        if (nodes[i]->group != NULL)
            continue;
        g = group_start(arena, nodes[i], rules->fuses, rules->mode);
        if (g == NULL)
            return NULL;
        if (g->kind == MR_GROUP_BLOCK && rules->mode != MR_FUSE_OFF) {
            if (!pull_all(arena, g, rules->fuses, rules->mode) ||
                (rules->mode == MR_FUSE_ALL &&
                 !(mr__fuse_puts(arena, g) &&
                   mr__fuse_indices(arena, g, rules->fuses))))
                return NULL;
            join_product(g, rules);
        }
        count_later_uses(g);
        g->next = first;
        first = g;
    }
    link_members(nodes, n);
    return first;
}
