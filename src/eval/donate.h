/* SPDX-License-Identifier: Apache-2.0
 *
 * donate.h -- may a group write its result where an input lies?
 */
#ifndef MR_EVAL_DONATE_H
#define MR_EVAL_DONATE_H

#include "eval/plan.h"

/* Nobody asks for what the group reads once it has run. */
bool mr__donate_forgotten(const mr_fuse_group *g);
/* Only group g, which is planned next, can see x's memory, and it will not ask
 * again; n is x's node of this window, NULL for a leaf. */
bool mr__donate_may(const mr_plan *p, const mr_fuse_group *g, const mr_array *x,
                    const mr_plan_node *n, uint32_t stream);
/* The same, and nobody of this window has read it before: a task that runs
 * again finds what it needs. */
bool mr__donate_sole(const mr_fuse_group *g, const mr_array *x,
                     const mr_plan_node *n);
/* A view has been placed; one of its uses is planned, on `stream`. */
void mr__donate_view(mr_plan_node *n);
void mr__donate_view_read(mr_plan_node *n, uint32_t stream);

#endif
