/* SPDX-License-Identifier: Apache-2.0
 *
 * door.h -- what the generated front doors call, and small help for the
 * bodies behind them.
 */
#ifndef MR_OPS_DOOR_H
#define MR_OPS_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/node.h"
#include "graph/op.h"
#include "marram/types.h"

typedef enum mr_promote_rule {
    MR_PROMOTE_SAME,
    MR_PROMOTE_FLOAT,
    MR_PROMOTE_COMPARE,
    MR_PROMOTE_LOGICAL,
    MR_PROMOTE_INT,
    MR_PROMOTE_SHIFT,
    MR_PROMOTE_NUMERIC,
    MR_PROMOTE_REAL,
    MR_PROMOTE_NONCOMPLEX
} mr_promote_rule;

/* The whole of an elementwise front door: NULL check, promotion, broadcast,
 * node.  The fast path (one dtype, one shape) makes just the node. */
mr_array *mr__door_unary(const char *site, const mr_op *op, mr_array *a,
                         mr_promote_rule rule);
mr_array *mr__door_binary(const char *site, const mr_op *op, mr_array *a,
                          mr_array *b, mr_promote_rule rule);

/* The frame of other front doors. */
typedef struct mr_door {
    struct mr__door error;  /* the door that was open before */
    const char *outer_site; /* mr__ctx.site before */
    mr_scope scope;
} mr_door;
/* False when an argument is NULL (the error is set) or no scope could be
 * opened; n arrays with their names. */
bool mr__door_open(mr_door *d, const char *site, const char *name, int n,
                   mr_array *const *args, const char *const *arg_names);
mr_array *mr__door_close(mr_door *d, mr_array *result);
mr_tree *mr__door_close_tree(mr_door *d, mr_tree *result);

/* ---- help for bodies ------------------------------------------------------
 */
/* axis in [-ndim, ndim) to [0, ndim); false with MR_E_INDEX set. */
bool mr__axis(int64_t axis, int32_t ndim, int32_t *out);
/* The array to work along an axis of, in k; without an axis, flattened.  NULL
 * with an error set. */
mr_array *mr__along(mr_array *a, int64_t axis, int32_t *k);
/* Axes to a bit mask; ALL gives all; repeated axes MR_E_VALUE. */
bool mr__axes_mask(mr_axes axes, int32_t ndim, uint32_t *out);
/* x cast to t, broadcast to a shape: x itself when nothing is to do. */
mr_array *mr__cast(mr_array *x, mr_dtype t);
mr_array *mr__broadcast(mr_array *x, int32_t ndim, const int64_t *dim);
/* 0-d, of dtype t, from a double or an integer. */
mr_array *mr__number(mr_dtype t, double v);
mr_array *mr__integer(mr_dtype t, int64_t v);

#endif
