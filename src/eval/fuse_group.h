/* SPDX-License-Identifier: Apache-2.0
 *
 * fuse_group.h -- a group while it grows.  Private to the fuser.
 */
#ifndef MR_EVAL_FUSE_GROUP_H
#define MR_EVAL_FUSE_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "eval/fuse.h"

static inline bool
mr__fuse_has_shape(const mr_array *x, int32_t ndim, const int64_t *dim)
{
    return x->ndim == ndim &&
           memcmp(x->dim, dim, (size_t)ndim * sizeof *dim) == 0;
}

/* ---- fuse.c ----------------------------------------------------------------
 */

/* x has a value for each row of the group's space, in the order of the rows:
 * the row form itself, or with fewer axes the same but for sizes of 1. */
bool mr__fuse_is_row(const mr_fuse_group *g, const mr_array *x);
/* n becomes a member; its producers count one use more. */
void mr__fuse_add(mr_fuse_group *g, mr_fuse_node *n, mr_fuse_role role);
/* How often members read n. */
int32_t mr__fuse_uses(const mr_fuse_group *g, const mr_fuse_node *n);

/* ---- fuse_read.c -----------------------------------------------------------
 */

/* Does m read a gather through n that the group can read itself?  It and the
 * views become members; `failed`: no memory. */
bool mr__fuse_gather(mr_arena *arena, mr_fuse_group *g, const mr_fuse_node *m,
                     mr_fuse_node *n, bool *failed);
/* Puts that points read, once all other members are known: only beside a
 * reduction of the row is there a row.  False: no memory. */
bool mr__fuse_puts(mr_arena *arena, mr_fuse_group *g);
/* What computes the indices of a group's gathers, once all other members are
 * known.  False: no memory. */
bool mr__fuse_indices(mr_arena *arena, mr_fuse_group *g, mr_fuses_fn fuses);

#endif
