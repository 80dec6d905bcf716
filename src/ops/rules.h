/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.h -- what the families share: inference of elementwise operators,
 * small arithmetic with constants for rules, sums back to a smaller shape.
 *
 * Inside ops/ alone.  What returns an array is owned as any result is: by the
 * scope that is open (rules and bodies run in one), and NULL passes through.
 */
#ifndef MR_OPS_RULES_H
#define MR_OPS_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/node.h"
#include "graph/op.h"
#include "kernels/ids.h"
#include "marram/types.h"

/* The fields that elementwise operators have in common. */
#define MR__ELEMENTWISE(id_, name_, n_, k_)                                    \
    .id = (id_), .version = 1, .n_in = (n_), .name = (name_),                  \
    .infer = mr__infer_elementwise, .vmap = mr__vmap_elementwise,              \
    .fuse = {MR_FUSE_ELEMENTWISE, (k_)}

/* The rules of an elementwise operator, from its slope.  A cotangent is
 * multiplied with the conjugate of the slope, a tangent with the slope: so the
 * gradient of a real loss by a complex number is dL/dx + i dL/dy. */
#define MR__SLOPED(slope_)                                                     \
    .slope = (slope_), .vjp = mr__slope_vjp, .jvp = mr__slope_jvp
/* What only sorts numbers into kinds, or is a step function. */
#define MR__FLAT .flags = MR_FLAG_ZERO_GRADIENT

/* The fields that follow from a parameter struct and its table. */
#define MR__PARAMS(type_, table_)                                              \
    .fields = (table_),                                                        \
    .n_fields = (uint8_t)(sizeof(table_) / sizeof(table_)[0]),                 \
    .params_bytes = sizeof(type_)

/* One dtype (select: after its condition), shapes that broadcast; the result's
 * dtype by the scalar operation. */
mr_code mr__infer_elementwise(const mr_op_call *c, mr_aval *out);
/* The dtype of what scalar operation k gives for operands of dtype t. */
mr_dtype mr__k_dtype(uint16_t k, mr_dtype t);
/* Shape and dtype of input 0. */
mr_code mr__infer_same(const mr_op_call *c, mr_aval *out);

mr_array *mr__slope_vjp(const mr_rule *r, int i);
mr_array *mr__slope_jvp(const mr_rule *r, int i);
/* Linear operators whose derivative is the operator itself. */
mr_array *mr__vjp_pass(const mr_rule *r, int i); /* the cotangent */
mr_array *mr__jvp_pass(const mr_rule *r, int i); /* the tangent */

/* x * c, x + c with a number of x's dtype. */
mr_array *mr__scale(mr_array *x, double c);
mr_array *mr__shift(mr_array *x, double c);
mr_array *mr__zeros_like(const mr_array *x);
mr_array *mr__ones_like(const mr_array *x);
/* Zeros or ones of any shape. */
mr_array *mr__filled(mr_dtype t, int32_t ndim, const int64_t *dim, double v);
/* The conjugate of complex numbers; others as they are. */
mr_array *mr__conj(mr_array *x);
/* x where mask, 0 elsewhere. */
mr_array *mr__masked(mr_array *mask, mr_array *x);
mr_array *mr__masked_not(mr_array *mask, mr_array *x);
/* x summed over what broadcasting from (ndim, dim) to its shape added. */
mr_array *mr__sum_to(mr_array *x, int32_t ndim, const int64_t *dim);
/* 0, 1, ... n - 1, uint32 or int64 when n needs it, along one axis of a shape
 * of ndim axes (the others of size 1). */
mr_array *mr__iota(int64_t n, int32_t axis, int32_t ndim);

/* x[start:stop:stride] along one axis, as in Python (MR_INT_NONE: left out). */
mr_array *mr__slice_one(mr_array *x, int32_t axis, int64_t start, int64_t stop,
                        int64_t stride);
/* x with the values at the indices along an axis combined (mr_scatter_mode
 * SET or ADD); all of x's shape but for the axis. */
mr_array *mr__put_along(mr_array *x, mr_array *index, mr_array *values,
                        int32_t axis, int64_t mode);
/* x at the indices along an axis, of x's shape but for the axis. */
mr_array *mr__take_along(mr_array *x, mr_array *index, int32_t axis);
/* The same on behalf of something that messages call otherwise: `label` is that
 * of x[index] or of scatter, else it is called take_along_axis. */
mr_array *mr__take_picked(mr_array *x, mr_array *index, int32_t axis,
                          const char *label);
#define MR__SCATTER_LABEL "x[index] = v or x.at[index]"
/* x at index arrays of which all but one count rows: one entry of each.  `even`
 * are the index arrays broadcast together, `label` what messages call it;
 * false: they are others. */
bool mr__pick_rows(mr_array *x, mr_array *const *indices, mr_array *const *even,
                   int n, mr_ints axes, mr_ints sizes, const char *label,
                   mr_array **out);
/* Entries along axis 0, as take; late errors name the function that picks. */
typedef enum mr_picker { MR_PICKS_MATRICES, MR_PICKS_SEGMENTS } mr_picker;
mr_array *mr__pick(mr_array *a, mr_array *indices, mr_picker who);
/* 0, 1, ... of a shape, int64, row-major. */
mr_array *mr__counting(const mr_array *like);
/* (..., rows, columns) with the last axis of x on a diagonal; zeros beside. */
mr_array *mr__from_diagonal(mr_array *x, int64_t offset, int64_t rows,
                            int64_t columns);
/* The operator of the rule's node, with its parameters, on x. */
mr_array *mr__again(const mr_rule *r, mr_array *x);

/* ---- lists of numbers for parameters --------------------------------------
 */
/* Short lists live in the caller. */
typedef struct mr_list {
    int64_t v[MR_MAX_NDIM];
    int64_t n;
} mr_list;

static inline mr_ints
mr__ints(const mr_list *l)
{
    return (mr_ints){l->v, l->n};
}

static inline mr_shape
mr__shape(const mr_list *l)
{
    return (mr_shape){l->v, l->n};
}

/* The dims of x; with one more in front. */
mr_list mr__dims(const mr_array *x);
/* The list with v in front (vmap: parameters with one entry an axis). */
mr_list mr__prepend(mr_ints l, int64_t v);

/* No array of more than MR_MAX_NDIM axes, no negative size, no overflow. */
mr_code mr__check_shape(int64_t ndim, const int64_t *dim);
/* The first letter of a mode of pad, 0 with an error when there is none such;
 * NULL is constant. */
char mr__pad_mode(const char *mode);
/* Integers alone. */
bool mr__is_index(const mr_array *x);
/* An array of a rule or body that must not be MR_NONE or NULL. */
static inline bool
mr__given(const mr_array *x)
{
    return x != MR_NONE;
}

/* "(2, 3)" of x, in a buffer of the caller's. */
typedef struct mr_text {
    char s[192];
} mr_text;
const char *mr__shape_of(const mr_array *x, mr_text *t);

#endif
