/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h -- where the elements of a node lie, and what views make of it.
 */
#ifndef MR_EVAL_PLACE_H
#define MR_EVAL_PLACE_H

#include "eval/plan.h"

/* Of a node of the window that was placed, or of a leaf. */
mr_place mr__place_of(const mr_plan *p, mr_array *x);
typedef enum mr_view_result {
    MR_VIEW_OK,
    MR_VIEW_COPY,     /* the operator needs a copy */
    MR_VIEW_NO_MEMORY /* the error is set */
} mr_view_result;
/* n's operator as a view of a placed input. */
mr_view_result mr__place_view(mr_plan *p, mr_plan_node *n, const mr_place *in,
                              mr_place *out);
bool mr__place_is_projection(const mr_array *x);
/* n is a projection of a tuple. */
mr_view_result mr__place_projection(mr_plan *p, const mr_plan_node *n,
                                    mr_place *out);
/* A copy in the window's memory: nodes may end before its last task runs. */
int64_t *mr__place_strides(mr_plan *p, int32_t ndim, const int64_t *stride);

#endif
