/* SPDX-License-Identifier: Apache-2.0
 *
 * fuse_read.c -- grouping: what a group reads through an index.
 *
 * Gathers that the group reads itself, with the views between; puts, which are
 * zeros but for one entry of a row; and the operators that compute the indices
 * of its gathers.
 *
 * Called by: fuse.c.  Calls: indices.c.
 */
#include <stddef.h>

#include "array/dtype.h"
#include "eval/fuse_group.h"
#include "eval/indices.h"

/* ---- gathers --------------------------------------------------------------
 */

/* Views between a gather and its reader. */
#define LOOKS 6

/* The reader's nodes from n down to a gather that nobody else reads, and how
 * many they are; 0: there is none. */
static int
chain_to_gather(const mr_fuse_group *g, mr_fuse_node *n, mr_fuse_node **chain)
{
    for (int k = 0; k <= LOOKS; n = n->in[0]) {
        if (n == NULL || n->group != NULL || n->n_uses != 1 || n->visible ||
            n->looked_at || n->x->size == 0 ||
            n->x->stream != g->root->x->stream)
            return 0;
        chain[k++] = n;
        if (n->x->op->gather != NULL)
            return n->x->in[0]->size <= INT32_MAX &&
                           mr__fuse_constant(n->x->in[0]) == NULL &&
                           mr__fuse_constant(n->x->in[1]) == NULL
                       ? k
                       : 0;
        if (n->x->op->fuse.kind != MR_FUSE_VIEW || n->x->n_in != 1)
            return 0;
    }
    return 0;
}

/* The map of the gather at the chain's end, seen through the views. */
static bool
map_through(mr_fuse_node *const *chain, int n, mr_gather_map *out)
{
    const mr_array *from = chain[n - 1]->x;
    int8_t axes[MR_MAX_NDIM];
    mr_gather_map own;

    if (!from->op->gather(from, &own) || !mr__axes_through(chain, n, axes))
        return false;
    out->axis = own.axis;
    for (int i = 0; i < chain[0]->x->ndim; i++) {
        out->value[i] = (int8_t)(axes[i] < 0 ? -1 : own.value[axes[i]]);
        out->index[i] = (int8_t)(axes[i] < 0 ? -1 : own.index[axes[i]]);
    }
    return true;
}

/* Whole rows are copied as fast by the gather's own kernel while the result
 * stays in the caches, and a tile would copy them too.  Single elements, and
 * what a reduction reads, are better never written down. */
#define ROWS_PAY_BYTES (8 << 20)

static bool
gather_pays(const mr_fuse_group *g, const mr_array *x, const mr_gather_map *map)
{
    int last = x->ndim - 1;

    while (last > 0 && x->dim[last] == 1)
        last--;
    return last < 0 || map->index[last] >= 0 || g->has_reduction ||
           x->size * mr__dtype_size((mr_dtype)x->dtype) >= ROWS_PAY_BYTES;
}

/* From the axes of x, a row form, to those of the space. */
static void
map_of_rows(const mr_fuse_group *g, const mr_array *x, mr_gather_map *map)
{
    const mr_gather_map own = *map;
    int axis = 0;

    for (int i = 0; i < g->ndim; i++) {
        map->value[i] = map->index[i] = -1;
        if ((g->red_axes >> i & 1) || g->dim[i] == 1)
            continue;
        while (x->dim[axis] == 1)
            axis++;
        map->value[i] = own.value[axis];
        map->index[i] = own.index[axis++];
    }
}

bool
mr__fuse_gather(mr_arena *arena, mr_fuse_group *g, const mr_fuse_node *m,
                mr_fuse_node *n, bool *failed)
{
    mr_fuse_node *chain[LOOKS + 1];
    mr_gather_map map, *kept;
    bool row = m->role == MR_ROLE_ROW;
    int k;

    if (m->role == MR_ROLE_BRIDGE || g->columns ||
        g->n_gathers == MR_FUSE_MAX_GATHERS ||
        g->n_through + 2 > MR_FUSE_MAX_THROUGH ||
        !(row ? g->has_reduction && mr__fuse_is_row(g, n->x)
              : mr__fuse_has_shape(n->x, g->ndim, g->dim)))
        return false;
    k = chain_to_gather(g, n, chain);
    if (k == 0 || g->n_members + k > MR_FUSE_MAX_MEMBERS ||
        g->n_ext + 2 > MR_FUSE_MAX_IN || !map_through(chain, k, &map) ||
        !gather_pays(g, n->x, &map))
        return false;
    if (row)
        map_of_rows(g, n->x, &map);
    kept = mr__arena_alloc(arena, sizeof *kept);
    *failed = kept == NULL;
    if (kept == NULL)
        return false;
    *kept = map;
    for (int i = 0; i < k; i++)
        mr__fuse_add(g, chain[i], i == k - 1 ? MR_ROLE_GATHER : MR_ROLE_LOOK);
    chain[k - 1]->gather = kept;
    chain[k - 1]->of_row = row;
    g->n_gathers++;
    g->n_through += 2;
    return true;
}

/* ---- puts
 * -------------------------------------------------------------------- */

static bool
is_zero(const mr_array *x)
{
    const unsigned char *bits = mr__fuse_constant(x);
    int64_t n = mr__dtype_size((mr_dtype)x->dtype);

    for (int64_t i = 0; bits != NULL && i < n; i++)
        if (bits[i] != 0)
            return false;
    return bits != NULL;
}

/* Zeros but for one entry of each row of the group, that the group alone
 * reads: the gradient of what was taken of a row. */
static bool
is_put(const mr_fuse_group *g, const mr_fuse_node *n, mr_put_map *put)
{
    return n != NULL && n->group == NULL && n->x->op->put != NULL &&
           !n->visible && !n->looked_at && n->x->size > 0 &&
           n->x->stream == g->root->x->stream &&
           mr__fuse_has_shape(n->x, g->ndim, g->dim) &&
           n->x->op->put(n->x, put) &&
           g->red_axes == (uint32_t)1 << put->axis && is_zero(n->x->in[0]) &&
           mr__fuse_uses(g, n) == n->n_uses;
}

static bool
pull_put(mr_arena *arena, mr_fuse_group *g, mr_fuse_node *n,
         const mr_put_map *put)
{
    mr_gather_map *map = mr__arena_zero(arena, sizeof *map);

    if (map == NULL)
        return false;
    map->axis = put->axis;
    for (int i = 0; i < g->ndim; i++)
        map->value[i] = map->index[i] = (int8_t)(i == put->axis ? -1 : i);
    n->gather = map;
    n->adds = put->adds;
    mr__fuse_add(g, n, MR_ROLE_PUT);
    g->n_gathers++;
    g->n_through += 2;
    return true;
}

bool
mr__fuse_puts(mr_arena *arena, mr_fuse_group *g)
{
    mr_put_map put;

    if (!g->has_reduction || g->columns)
        return true;
    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        for (int i = 0; i < m->x->n_in; i++)
            if ((m->role == MR_ROLE_POINT || m->role == MR_ROLE_REDUCE) &&
                g->n_gathers < MR_FUSE_MAX_GATHERS &&
                g->n_through + 2 <= MR_FUSE_MAX_THROUGH &&
                g->n_members < MR_FUSE_MAX_MEMBERS &&
                g->n_ext + 2 <= MR_FUSE_MAX_IN && is_put(g, m->in[i], &put) &&
                !pull_put(arena, g, m->in[i], &put))
                return false;
    return true;
}

/* ---- indices that are computed
 * -------------------------------------------- */

/* An index for each point of the group: where there are fewer, one for each
 * row, they are few beside what is read, and better computed all at once.  What
 * stays in the caches is written down and read again for nothing. */
static bool
index_pays(const mr_fuse_group *g, const mr_fuse_node *m,
           const mr_gather_map *map)
{
    const mr_array *from = m->x->in[0];

    if (m->x->size < MR_FUSE_FEW_INDICES ||
        from->size * mr__dtype_size((mr_dtype)from->dtype) > MR_FUSE_FAR_BYTES)
        return false;
    for (int i = 0; i < g->ndim; i++)
        if (g->dim[i] != 1 && map->index[i] < 0)
            return false;
    return true;
}

static bool
pull_index(mr_arena *arena, mr_fuse_group *g, mr_fuse_node *m,
           mr_fuses_fn fuses)
{
    mr_gather_map *map;
    int8_t axes[MR_MAX_NDIM];
    mr_index_tree t;

    if (!mr__index_tree(g, m, fuses, &t) ||
        g->n_through + t.n_leaf - 1 > MR_FUSE_MAX_THROUGH ||
        g->n_ext + t.n_leaf > MR_FUSE_MAX_IN ||
        g->n_members + t.n_node + t.n_view > MR_FUSE_MAX_MEMBERS ||
        !mr__axes_through(t.view, t.n_view, axes) ||
        !index_pays(g, m, m->gather))
        return true;
    map = mr__arena_alloc(arena, sizeof *map);
    if (map == NULL)
        return false;
    *map = *m->gather;
    for (int i = 0; i < g->ndim; i++)
        if (map->index[i] >= 0)
            map->index[i] = axes[map->index[i]];
    m->gather = map;
    m->index = t.node[0];
    for (int i = 0; i + 1 < t.n_view; i++)
        mr__fuse_add(g, t.view[i], MR_ROLE_INDEX);
    for (int i = 0; i < t.n_node; i++)
        mr__fuse_add(g, t.node[i], MR_ROLE_INDEX);
    g->n_through += t.n_leaf - 1;
    return true;
}

bool
mr__fuse_indices(mr_arena *arena, mr_fuse_group *g, mr_fuses_fn fuses)
{
    for (mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        if (m->role == MR_ROLE_GATHER && !pull_index(arena, g, m, fuses))
            return false;
    return true;
}
