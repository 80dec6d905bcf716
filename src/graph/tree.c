/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c -- trees of arrays.
 *
 * A tree is one block: header, children, keys and their text.  Its number of
 * leaves, depth and structure hash are computed when it is made, from those of
 * its children; the depth is bounded, so functions here recurse.
 * Called by: users, transforms, compile/, bindings.  Calls: scope.c, base/.
 */
#include "graph/tree.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "graph/context.h"
#include "graph/node.h"
#include "marram/array.h"
#include "marram/scope.h"

#define TOTAL_MASK ((MR_REF_ONE << 40) - 1)

static mr_tree none = {.refs = 1, .kind = MR_TREE_NONE, .depth = 1, .hash = 1};

/* ---- references --------------------------------------------------------- */

bool
mr__tree_is_static(const mr_tree *t)
{
    return t == &none;
}

mr_tree *
mr__tree_retain(mr_tree *t)
{
    /* relaxed: whoever retains already has a reference */
    if (t != &none)
        atomic_fetch_add_explicit(&t->refs, MR_REF_ONE, memory_order_relaxed);
    return t;
}

void
mr__tree_mark_user(mr_tree *t)
{
    /* relaxed: whoever marks has the reference */
    if (t != &none)
        atomic_fetch_add_explicit(&t->refs, MR_REF_USER - MR_REF_ONE,
                                  memory_order_relaxed);
}

static void
tree_free(mr_tree *t)
{
    mr__release(t->leaf);
    for (int i = 0; i < t->n; i++)
        mr__tree_release(t->item[i]);
    mr__dealloc(t);
}

void
mr__tree_release(mr_tree *t)
{
    if (t == NULL || t == &none)
        return;
    /* acq_rel: the last to go frees after the reads of all others */
    if ((atomic_fetch_sub_explicit(&t->refs, MR_REF_ONE, memory_order_acq_rel) &
         TOTAL_MASK) == 1)
        tree_free(t);
}

mr_tree *
mr_tree_retain(mr_tree *t)
{
    /* relaxed: whoever retains already has a reference */
    if (t && t != &none)
        atomic_fetch_add_explicit(&t->refs, MR_REF_USER, memory_order_relaxed);
    return t;
}

void
mr_tree_release(mr_tree *t)
{
    uint64_t refs;

    if (t == NULL || t == &none)
        return;
    refs = atomic_load_explicit(&t->refs, memory_order_relaxed);
    do {
        if (refs >> 40 == 0) {
            mr__log(MR_LOG_ERROR, "mr_tree_release of a tree of which the "
                                  "caller has no reference");
            mr__fail(MR_E_STATE, "mr_tree_release of a tree of which the "
                                 "caller has no reference: a scope owns it, "
                                 "or it was released before");
            return;
        }
        /* acq_rel: the last to go frees after the reads of all others */
    } while (!atomic_compare_exchange_weak_explicit(
        &t->refs, &refs, refs - MR_REF_USER, memory_order_acq_rel,
        memory_order_relaxed));
    if ((refs & TOTAL_MASK) == 1)
        tree_free(t);
    mr__buffer_drain();
}

/* ---- making; results are references of no class ------------------------- */

static mr_tree *
leaf_make(mr_array *x)
{
    mr_tree *t;

    if (x == mr_none_array)
        return &none;
    t = mr__alloc(sizeof *t);
    if (t == NULL)
        return NULL;
    *t = (mr_tree){.refs = MR_REF_ONE,
                   .kind = MR_TREE_LEAF,
                   .n_leaves = 1,
                   .depth = 1,
                   .hash = mr__hash_u64(MR_TREE_LEAF),
                   .leaf = mr__retain(x)};
    return t;
}

static size_t
keys_bytes(int n, const char *const *keys)
{
    size_t bytes = 0;

    for (int i = 0; keys && i < n; i++)
        bytes += sizeof *keys + strlen(keys[i]) + 1;
    return bytes;
}

static void
put_keys(mr_tree *t, const char *const *keys)
{
    char *text;

    t->key = (const char **)(void *)(t->item + t->n);
    text = (char *)(t->key + t->n);
    for (int i = 0; i < t->n; i++) {
        size_t bytes = strlen(keys[i]) + 1;

        t->key[i] = memcpy(text, keys[i], bytes);
        text += bytes;
        t->hash = mr__hash_bytes(t->hash, keys[i], bytes);
    }
}

/* A node of the tree over its children, whose references it takes, also when
 * it fails. */
static mr_tree *
branch_take(mr_tree_kind kind, int n, const char *const *keys, mr_tree **item)
{
    mr_tree *t =
        mr__alloc(sizeof *t + (size_t)n * sizeof *item + keys_bytes(n, keys));

    if (t == NULL) {
        for (int i = 0; i < n; i++)
            mr__tree_release(item[i]);
        return NULL;
    }
    *t = (mr_tree){.refs = MR_REF_ONE, .kind = kind, .n = n, .depth = 1};
    t->item = (mr_tree **)(void *)(t + 1);
    t->hash = mr__hash_u64((uint64_t)kind << 32 ^ (uint64_t)n);
    for (int i = 0; i < n; i++) {
        t->item[i] = item[i];
        t->n_leaves += item[i]->n_leaves;
        if (item[i]->depth >= t->depth)
            t->depth = item[i]->depth + 1;
        t->hash = mr__hash_u64(t->hash ^ item[i]->hash);
    }
    if (keys)
        put_keys(t, keys);
    return t;
}

static bool
child_given(const void *child, int i)
{
    if (child == NULL && !mr__error_pending())
        mr__fail(MR_E_NULL, "child %d of the tree is NULL", i);
    return child != NULL;
}

static bool
children_fit(int n, mr_tree *const *items)
{
    int64_t leaves = 0;

    if (n < 0 || (n > 0 && items == NULL)) {
        mr__fail(MR_E_VALUE, "a tree of %d children needs a list of them", n);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!child_given(items[i], i))
            return false;
        leaves += items[i]->n_leaves;
        if (items[i]->depth < MR_TREE_MAX_DEPTH && leaves <= INT32_MAX)
            continue;
        mr__fail(MR_E_VALUE, "trees have at most %d levels and 2^31 - 1 leaves",
                 MR_TREE_MAX_DEPTH);
        return false;
    }
    return true;
}

/* A branch that adds its own references of the children. */
static mr_tree *
branch_new(mr_tree_kind kind, int n, const char *const *keys,
           mr_tree *const *items)
{
    mr_tree **own, *t;

    if (!children_fit(n, items))
        return NULL;
    own = mr__alloc_array((size_t)n, sizeof *own);
    if (own == NULL)
        return NULL;
    for (int i = 0; i < n; i++)
        own[i] = mr__tree_retain(items[i]);
    t = branch_take(kind, n, keys, own);
    mr__dealloc(own);
    return mr__scope_own_tree(t);
}

mr_tree *
mr_tree_none(void)
{
    return &none;
}

mr_tree *
mr_tree_leaf(mr_array *x)
{
    return child_given(x, 0) ? mr__scope_own_tree(leaf_make(x)) : NULL;
}

mr_tree *
mr_tree_list(int n, mr_tree *const *items)
{
    return branch_new(MR_TREE_LIST, n, NULL, items);
}

mr_tree *
mr_tree_tuple(int n, mr_tree *const *items)
{
    return branch_new(MR_TREE_TUPLE, n, NULL, items);
}

/* No key twice: a table from the hashes of keys to the keys. */
static bool
keys_fit(int n, const char *const *keys)
{
    mr_map seen = {0};
    bool fit = true;

    for (int i = 0; fit && i < n; i++) {
        uint64_t h;
        void **at;

        if (keys == NULL || keys[i] == NULL) {
            mr__fail(MR_E_NULL, "key %d of the dict is NULL", i);
            fit = false;
            break;
        }
        /* as a pointer it is never followed; on a collision take the next */
        h = mr__hash_bytes(0, keys[i], strlen(keys[i])) | 1;
        while ((at = mr__map_at(&seen, (const void *)(uintptr_t)h)) != NULL &&
               *at != NULL && strcmp((const char *)*at, keys[i]) != 0)
            h += 2;
        if (at == NULL) {
            fit = false;
        } else if (*at != NULL) {
            mr__fail(MR_E_VALUE, "the dict has two values for the key \"%s\"",
                     keys[i]);
            fit = false;
        } else {
            memcpy(at, &keys[i], sizeof *at);
        }
    }
    mr__map_free(&seen);
    return fit;
}

mr_tree *
mr_tree_dict(int n, const char *const *keys, mr_tree *const *items)
{
    static const char *const no_keys[1] = {NULL};

    if (!keys_fit(n, keys))
        return NULL;
    return branch_new(MR_TREE_DICT, n, keys ? keys : no_keys, items);
}

mr_tree *
mr_tree_arrays(int n, mr_array *const *arrays)
{
    mr_tree **item, *t = NULL;
    int made = 0;

    if (n < 0 || (n > 0 && arrays == NULL))
        return mr__fail_null(MR_E_VALUE,
                             "a tree of %d arrays needs a list of them", n);
    item = mr__alloc_array((size_t)n, sizeof *item);
    if (item == NULL)
        return NULL;
    for (; made < n && child_given(arrays[made], made); made++) {
        item[made] = leaf_make(arrays[made]);
        if (item[made] == NULL)
            break;
    }
    if (made == n)
        t = branch_take(MR_TREE_TUPLE, n, NULL, item);
    else
        while (made > 0)
            mr__tree_release(item[--made]);
    mr__dealloc(item);
    return mr__scope_own_tree(t);
}

/* ---- asking ------------------------------------------------------------- */

mr_tree_kind
mr_tree_kind_of(const mr_tree *t)
{
    return t ? t->kind : MR_TREE_NONE;
}

int
mr_tree_size(const mr_tree *t)
{
    return t ? t->n : 0;
}

int
mr_tree_n_leaves(const mr_tree *t)
{
    return t ? t->n_leaves : 0;
}

uint64_t
mr_tree_structure_hash(const mr_tree *t)
{
    return t ? t->hash : 0;
}

static bool
tree_given(const mr_tree *t)
{
    if (t == NULL && !mr__error_pending())
        mr__fail(MR_E_NULL, "the tree is NULL");
    return t != NULL;
}

mr_tree *
mr_tree_at(const mr_tree *t, int i)
{
    if (!tree_given(t))
        return NULL;
    if (i < 0 || i >= t->n)
        return mr__fail_null(
            MR_E_INDEX, "child %d of a tree that has %d children", i, t->n);
    return t->item[i];
}

static const char *
kind_name(const mr_tree *t)
{
    static const char *const kinds[] = {"none", "an array", "a list", "a tuple",
                                        "a dict"};

    return kinds[t->kind];
}

mr_array *
mr_tree_array(const mr_tree *t)
{
    if (!tree_given(t))
        return NULL;
    if (t->kind != MR_TREE_LEAF)
        return mr__fail_null(MR_E_TYPE, "expected an array, got %s",
                             kind_name(t));
    return t->leaf;
}

mr_array *
mr_tree_array_at(const mr_tree *t, int i)
{
    mr_tree *child = mr_tree_at(t, i);

    return child ? mr_tree_array(child) : NULL;
}

const char *
mr_tree_key(const mr_tree *t, int i)
{
    if (mr_tree_at(t, i) == NULL)
        return NULL;
    if (t->kind != MR_TREE_DICT)
        return mr__fail_null(MR_E_TYPE, "only a dict has keys, this is %s",
                             kind_name(t));
    return t->key[i];
}

mr_tree *
mr_tree_get(const mr_tree *t, const char *key)
{
    if (!tree_given(t))
        return NULL;
    if (t->kind != MR_TREE_DICT)
        return mr__fail_null(MR_E_TYPE, "only a dict has keys, this is %s",
                             kind_name(t));
    if (key == NULL)
        return mr__fail_null(MR_E_TYPE, "a key is a text, this one is NULL");
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->key[i], key) == 0)
            return t->item[i];
    return mr__fail_null(MR_E_INDEX, "the dict has no key \"%s\"", key);
}

mr_array *
mr_tree_get_array(const mr_tree *t, const char *key)
{
    mr_tree *child = mr_tree_get(t, key);

    return child ? mr_tree_array(child) : NULL;
}

/* ---- leaves ------------------------------------------------------------- */

static mr_array **
put_leaves(const mr_tree *t, mr_array **out)
{
    if (t->kind == MR_TREE_LEAF)
        *out++ = t->leaf;
    for (int i = 0; i < t->n; i++)
        out = put_leaves(t->item[i], out);
    return out;
}

static bool
leaves_match(const mr_tree *t, int n)
{
    if (n == t->n_leaves)
        return true;
    mr__fail(MR_E_VALUE, "%d arrays for a tree of %d leaves", n, t->n_leaves);
    return false;
}

mr_code
mr_tree_leaves(const mr_tree *t, mr_array **out, int n)
{
    if (!tree_given(t) || !leaves_match(t, n))
        return mr__error_code();
    if (n > 0 && out == NULL)
        return mr__fail(MR_E_NULL, "the place for %d leaves is NULL", n);
    put_leaves(t, out);
    return MR_OK;
}

/* Takes leaves from *at on. */
static mr_tree *
like(const mr_tree *t, mr_array *const **at)
{
    mr_tree **item, *made = NULL;
    int i = 0;

    if (t->kind == MR_TREE_NONE)
        return &none;
    if (t->kind == MR_TREE_LEAF)
        return leaf_make(*(*at)++);
    item = mr__alloc_array((size_t)t->n, sizeof *item);
    if (item == NULL)
        return NULL;
    for (; i < t->n; i++) {
        item[i] = like(t->item[i], at);
        if (item[i] == NULL)
            break;
    }
    if (i == t->n)
        made = branch_take(t->kind, t->n, t->key, item);
    else
        while (i > 0)
            mr__tree_release(item[--i]);
    mr__dealloc(item);
    return made;
}

mr_tree *
mr__tree_like(const mr_tree *t, mr_array *const *leaves, int n)
{
    if (!tree_given(t) || !leaves_match(t, n))
        return NULL;
    if (n > 0 && leaves == NULL)
        return mr__fail_null(MR_E_NULL, "the list of %d leaves is NULL", n);
    for (int i = 0; i < n; i++)
        if (!child_given(leaves[i], i))
            return NULL;
    return like(t, &leaves);
}

mr_tree *
mr_tree_like(const mr_tree *t, mr_array *const *leaves, int n)
{
    return mr__scope_own_tree(mr__tree_like(t, leaves, n));
}

/* ---- structure ---------------------------------------------------------- */

bool
mr_tree_same_structure(const mr_tree *a, const mr_tree *b)
{
    if (a == b)
        return true;
    if (a == NULL || b == NULL || a->hash != b->hash || a->kind != b->kind ||
        a->n != b->n || a->n_leaves != b->n_leaves)
        return false;
    for (int i = 0; i < a->n; i++) {
        if (a->kind == MR_TREE_DICT && strcmp(a->key[i], b->key[i]) != 0)
            return false;
        if (!mr_tree_same_structure(a->item[i], b->item[i]))
            return false;
    }
    return true;
}

/* ---- map ---------------------------------------------------------------- */

static bool
trees_match(int n, mr_tree *const *trees)
{
    if (n < 1 || trees == NULL) {
        mr__fail(MR_E_VALUE, "a map needs one tree or more");
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!tree_given(trees[i]))
            return false;
        if (mr_tree_same_structure(trees[0], trees[i]))
            continue;
        mr__fail(MR_E_VALUE, "tree %d has another structure than the first", i);
        return false;
    }
    return true;
}

/* All results, each a reference of ours: NULL at the first failure. */
static bool
map_leaves(mr_array *(*fn)(void *, mr_array *const *), void *ctx, int n,
           int n_leaves, mr_array *const *in, mr_array **x, mr_array **out)
{
    for (int k = 0; k < n_leaves; k++) {
        mr_array *y;

        for (int i = 0; i < n; i++)
            x[i] = in[i * (int64_t)n_leaves + k];
        y = fn(ctx, x);
        if (y == NULL) {
            child_given(y, k);
            return false;
        }
        out[k] = y;
    }
    return true;
}

mr_tree *
mr_tree_map(mr_array *(*fn)(void *ctx, mr_array *const *x), void *ctx, int n,
            mr_tree *const *trees)
{
    size_t n_leaves, room;
    mr_array **in, **x, **out;
    mr_tree *t = NULL;
    mr_scope s;

    if (fn == NULL)
        return mr__fail_null(MR_E_NULL, "the function to map is NULL");
    if (!trees_match(n, trees))
        return NULL;
    n_leaves = (size_t)trees[0]->n_leaves;
    room = n_leaves * (size_t)n + (size_t)n + n_leaves;
    in = mr__alloc_array(room, sizeof *in);
    if (in == NULL)
        return NULL;
    x = in + n_leaves * (size_t)n;
    out = x + n;
    for (int i = 0; i < n; i++)
        put_leaves(trees[i], in + n_leaves * (size_t)i);
    s = mr_scope_begin();
    if (s.token != 0) {
        if (map_leaves(fn, ctx, n, (int)n_leaves, in, x, out))
            t = mr__tree_like(trees[0], out, (int)n_leaves);
        mr_scope_end(s);
    }
    mr__dealloc(in);
    return mr__scope_own_tree(t);
}
