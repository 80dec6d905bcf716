/* SPDX-License-Identifier: Apache-2.0
 *
 * vec.c -- a growing list of pointers: the growing, and what is new to it.
 *
 * Called by: everything.  Calls: alloc.h, map.c.
 */
#include "base/vec.h"

#include <stdint.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"

enum { FIRST_CAP = 8 };

bool
mr__vec_grow(mr_vec *v, size_t cap)
{
    size_t twice = v->cap > 0 ? v->cap * 2 : FIRST_CAP;
    void **p;

    if (cap <= v->cap)
        return true;
    if (cap > SIZE_MAX / sizeof *p / 4) {
        mr__fail(MR_E_MEMORY, "could not allocate a list of %zu entries", cap);
        return false;
    }
    if (cap < twice)
        cap = twice;
    p = mr__alloc_again(v->v, cap * sizeof *p);
    if (p == NULL)
        return false;
    v->v = p;
    v->cap = cap;
    return true;
}

bool
mr__vec_push_new(mr_vec *v, mr_map *seen, void *p)
{
    void **mark = mr__map_at(seen, p);

    if (mark == NULL || *mark != NULL)
        return mark != NULL;
    *mark = p;
    return mr__vec_push(v, p);
}

void
mr__vec_free(mr_vec *v)
{
    mr__dealloc(v->v);
    *v = (mr_vec){0};
}
