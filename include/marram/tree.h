/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.h -- trees of arrays: what transforms and compiled functions take and
 * give.
 *
 * Immutable counted values: a leaf (one array), a list, a tuple, a dict (text
 * keys in the order given) or none.  Owned as arrays are: by the scope that is
 * open on this thread, or by the caller (mr_tree_release).  Constructors do
 * not take their children's references: they add their own.  A NULL child
 * makes the constructor return NULL and keeps the first error.  Any thread.
 */
#ifndef MARRAM_TREE_H
#define MARRAM_TREE_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

typedef enum mr_tree_kind {
    MR_TREE_NONE = 0,
    MR_TREE_LEAF = 1,
    MR_TREE_LIST = 2,
    MR_TREE_TUPLE = 3,
    MR_TREE_DICT = 4
} mr_tree_kind;

MR_API mr_tree *mr_tree_none(void);
MR_API mr_tree *mr_tree_leaf(mr_array *x);
MR_API mr_tree *mr_tree_list(int n, mr_tree *const *items);
MR_API mr_tree *mr_tree_tuple(int n, mr_tree *const *items);
MR_API mr_tree *mr_tree_dict(int n, const char *const *keys,
                             mr_tree *const *items);
/* Tuple of leaves: mr_tree_arrays(n, arrays). */
MR_API mr_tree *mr_tree_arrays(int n, mr_array *const *arrays);
#ifndef __cplusplus
/* MR_ARRAYS(a, b, c): a tuple of three leaves. */
#define MR_ARRAYS(...)                                                         \
    mr_tree_arrays(                                                            \
        (int)(sizeof((mr_array *[]){__VA_ARGS__}) / sizeof(mr_array *)),       \
        (mr_array *[]){__VA_ARGS__})
/* MR_TUPLE(t, u): a tuple of trees. */
#define MR_TUPLE(...)                                                          \
    mr_tree_tuple(                                                             \
        (int)(sizeof((mr_tree *[]){__VA_ARGS__}) / sizeof(mr_tree *)),         \
        (mr_tree *[]){__VA_ARGS__})
#endif

MR_API mr_tree *mr_tree_retain(mr_tree *t);
MR_API void mr_tree_release(mr_tree *t);

/* Asking: borrowed results. */
MR_API mr_tree_kind mr_tree_kind_of(const mr_tree *t);
MR_API int mr_tree_size(const mr_tree *t);           /* children */
MR_API mr_tree *mr_tree_at(const mr_tree *t, int i); /* child i or NULL */
MR_API mr_array *mr_tree_array_at(const mr_tree *t, int i); /* child i's leaf */
MR_API const char *mr_tree_key(const mr_tree *t, int i);    /* dict */
MR_API mr_tree *mr_tree_get(const mr_tree *t, const char *key);
MR_API mr_array *mr_tree_get_array(const mr_tree *t, const char *key);
MR_API mr_array *
mr_tree_array(const mr_tree *t); /* of a leaf, else NULL+error */

/* All leaves in order. */
MR_API int mr_tree_n_leaves(const mr_tree *t);
MR_API mr_code mr_tree_leaves(const mr_tree *t, mr_array **out, int n);
/* The same structure over other leaves (n must be mr_tree_n_leaves). */
MR_API mr_tree *mr_tree_like(const mr_tree *t, mr_array *const *leaves, int n);
/* fn over corresponding leaves of n trees of one structure. */
MR_API mr_tree *mr_tree_map(mr_array *(*fn)(void *ctx, mr_array *const *x),
                            void *ctx, int n, mr_tree *const *trees);
MR_API bool mr_tree_same_structure(const mr_tree *a, const mr_tree *b);
MR_API uint64_t mr_tree_structure_hash(const mr_tree *t);

/* ---- the same with the caller's line --------------------------------------
 * Errors of these name the line of the call; a binding, which has no C lines,
 * calls the plain functions (-DMR_PLAIN_CALLS). */
MR_API mr_tree *mr_tree_leaf_sited(const char *site, mr_array *x);
MR_API mr_tree *mr_tree_list_sited(const char *site, int n,
                                   mr_tree *const *items);
MR_API mr_tree *mr_tree_tuple_sited(const char *site, int n,
                                    mr_tree *const *items);
MR_API mr_tree *mr_tree_dict_sited(const char *site, int n,
                                   const char *const *keys,
                                   mr_tree *const *items);
MR_API mr_tree *mr_tree_arrays_sited(const char *site, int n,
                                     mr_array *const *arrays);
MR_API mr_tree *mr_tree_at_sited(const char *site, const mr_tree *t, int i);
MR_API mr_array *mr_tree_array_at_sited(const char *site, const mr_tree *t,
                                        int i);
MR_API const char *mr_tree_key_sited(const char *site, const mr_tree *t, int i);
MR_API mr_tree *mr_tree_get_sited(const char *site, const mr_tree *t,
                                  const char *key);
MR_API mr_array *mr_tree_get_array_sited(const char *site, const mr_tree *t,
                                         const char *key);
MR_API mr_array *mr_tree_array_sited(const char *site, const mr_tree *t);
MR_API mr_code mr_tree_leaves_sited(const char *site, const mr_tree *t,
                                    mr_array **out, int n);
MR_API mr_tree *mr_tree_like_sited(const char *site, const mr_tree *t,
                                   mr_array *const *leaves, int n);
MR_API mr_tree *mr_tree_map_sited(const char *site,
                                  mr_array *(*fn)(void *ctx,
                                                  mr_array *const *x),
                                  void *ctx, int n, mr_tree *const *trees);
#ifndef MR_PLAIN_CALLS
#define mr_tree_leaf(...)      mr_tree_leaf_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_list(...)      mr_tree_list_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_tuple(...)     mr_tree_tuple_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_dict(...)      mr_tree_dict_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_arrays(...)    mr_tree_arrays_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_at(...)        mr_tree_at_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_array_at(...)  mr_tree_array_at_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_key(...)       mr_tree_key_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_get(...)       mr_tree_get_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_get_array(...) mr_tree_get_array_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_array(...)     mr_tree_array_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_leaves(...)    mr_tree_leaves_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_like(...)      mr_tree_like_sited(MR_SITE, __VA_ARGS__)
#define mr_tree_map(...)       mr_tree_map_sited(MR_SITE, __VA_ARGS__)
#endif

MR_EXTERN_C_END

#endif
