/* SPDX-License-Identifier: Apache-2.0
 *
 * reserve.h -- what reserve.c and blocks.c share.  All run under the plan
 * lock, on the window of p; false and NULL: an error is set.
 */
#ifndef MR_EVAL_RESERVE_H
#define MR_EVAL_RESERVE_H

#include "eval/plan.h"

/* ---- reserve.c ------------------------------------------------------------
 */

/* A task of node's stream, where that is; room for so many operands. */
mr_task *mr__reserve_task(mr_plan *p, mr_task_kind kind, mr_array *node,
                          int n_in, int n_out);
/* It runs on `device` instead. */
bool mr__reserve_settle(mr_plan *p, mr_task *t, const mr_device_table *device);
/* x's row of its device, or of the host, which then is where it runs. */
bool mr__reserve_kernel(mr_plan *p, mr_task *t, const mr_array *x);
/* The task's first operands: x's inputs, brought and copied as its kernel
 * wants them. */
bool mr__reserve_inputs(mr_plan *p, mr_task *t, mr_array *x);
/* An operand that is x, at w. */
void mr__reserve_operand(mr_task_operand *o, const mr_place *w,
                         const mr_array *x);

/* Memory of the task's device that nobody reads any more, or new. */
mr_buffer *mr__reserve_buffer(mr_plan *p, const mr_task *t, size_t bytes);
/* Later tasks of the stream may have it. */
void mr__reserve_again(mr_plan *p, mr_recycled r);
/* A fresh place, row-major, that t fills. */
bool mr__reserve_fresh(mr_plan *p, mr_task *t, mr_dtype dt, int32_t ndim,
                       const int64_t *dim, int64_t size, mr_place *w);
/* A place in the memory of input `from` (of this node), which nobody else will
 * read. */
bool mr__reserve_over(mr_plan *p, mr_task *t, int from, mr_fuse_node *node,
                      mr_array *leaf, int32_t ndim, const int64_t *stride,
                      mr_place *w);
/* Result k of n's task, over input `from` if that is not -1. */
bool mr__reserve_result(mr_plan *p, mr_task *t, mr_plan_node *n, int k,
                        int from);
/* The place of a view. */
bool mr__reserve_view(mr_plan *p, mr_plan_node *n);
/* The group's uses of things from outside are planned now. */
void mr__reserve_uses(mr_plan *p, const mr_fuse_group *g);
/* Nanoseconds that a copy of this takes. */
double mr__reserve_copy_cost(int64_t size, mr_dtype t);

/* ---- blocks.c -------------------------------------------------------------
 */

/* The task of a block, or of a product and the block that follows it. */
bool mr__reserve_block(mr_plan *p, mr_fuse_group *g);
bool mr__reserve_joined(mr_plan *p, mr_fuse_group *g);

#endif
