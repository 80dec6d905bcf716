/* SPDX-License-Identifier: Apache-2.0
 *
 * vec.h -- a growing list of pointers.
 *
 * Zero-initialise it.  Not thread safe.
 */
#ifndef MR_BASE_VEC_H
#define MR_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mr_vec {
    void **v;
    size_t n, cap;
} mr_vec;

/* False with MR_E_MEMORY set when it cannot grow; nothing is lost then. */
bool mr__vec_grow(mr_vec *v, size_t cap);
void mr__vec_free(mr_vec *v);

struct mr_map;
/* Unless it is in `seen`, where it is put: true also then. */
bool mr__vec_push_new(mr_vec *v, struct mr_map *seen, void *p);

static inline bool
mr__vec_push(mr_vec *v, void *p)
{
    if (v->n == v->cap && !mr__vec_grow(v, v->n + 1))
        return false;
    v->v[v->n++] = p;
    return true;
}

static inline void *
mr__vec_pop(mr_vec *v)
{
    return v->n > 0 ? v->v[--v->n] : NULL;
}

#endif
