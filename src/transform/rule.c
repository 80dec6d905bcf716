/* SPDX-License-Identifier: Apache-2.0
 *
 * rule.c -- what the transforms share around an operator's rules: the frame
 * in which a rule runs, the memo of mr_rule_once, checks of what came back.
 *
 * Called by: vjp.c, jvp.c, vmap.c, rules in ops/.  Calls: graph/,
 * marram/ops.h.
 */
#include "transform/walk.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/context.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/scope.h"

mr_code
mr__rule_enter(mr_rule_frame *f, const mr_node *x)
{
    f->scope = mr_scope_begin();
    if (f->scope.token == 0)
        return MR_E_MEMORY;
    f->site = mr__ctx.site;
    f->stream = mr__ctx.stream;
    f->door = mr__error_door(NULL, NULL);
    /* What a rule makes is blamed on the line whose derivative it is. */
    if (x->site)
        mr__ctx.site = x->site;
    mr__ctx.stream = x->stream;
    return MR_OK;
}

void
mr__rule_leave(mr_rule_frame *f)
{
    mr__error_door_restore(f->door);
    mr__ctx.site = f->site;
    mr__ctx.stream = f->stream;
    mr_scope_end(f->scope);
}

mr_array *
mr_rule_once(const mr_rule *r, int slot, mr_array *(*fn)(const mr_rule *r))
{
    mr_array **at;

    assert(slot >= 0 && slot < MR_RULE_SLOTS);
    at = &r->memo->value[slot];
    if (!*at) {
        mr_array *x = fn(r);

        if (x)
            *at = mr__retain(x);
    }
    return *at;
}

void
mr__rule_memo_clear(struct mr_rule_memo *m)
{
    for (int i = 0; i < MR_RULE_SLOTS; i++) {
        mr__release(m->value[i]);
        m->value[i] = NULL;
    }
    for (int i = 0; i < m->n_list; i++)
        mr__release(m->list[i]);
    mr__dealloc(m->list);
    m->list = NULL;
    m->n_list = 0;
}

mr_dtype
mr__result_dtype(const mr_node *x, int k)
{
    return x->flags & MR_NODE_TUPLE ? x->tuple[k].dtype : (mr_dtype)x->dtype;
}

static mr_shape
result_shape(const mr_node *x, int k)
{
    if (x->flags & MR_NODE_TUPLE)
        return (mr_shape){x->tuple[k].dim, x->tuple[k].ndim};
    return (mr_shape){x->dim, x->ndim};
}

mr_array *
mr__result_zeros(const mr_node *x, int k)
{
    return mr_zeros(result_shape(x, k), mr__result_dtype(x, k));
}

mr_array *
mr__result_ones(const mr_node *x, int k)
{
    return mr_ones(result_shape(x, k), mr__result_dtype(x, k));
}

mr_code
mr__accumulate(mr_array **place, mr_array *x)
{
    mr_array *sum = x;

    if (*place) {
        sum = mr_add(*place, x);
        if (!sum)
            return mr__error_code();
    }
    mr__retain(sum);
    mr__release(*place);
    *place = sum;
    return MR_OK;
}

mr_code
mr__accumulate_part(mr_array **place, mr_array *part)
{
    if (!part)
        return mr__error_code();
    return part == MR_NONE ? MR_OK : mr__accumulate(place, part);
}

static bool
same_shape(const mr_array *x, int32_t ndim, const int64_t *dim)
{
    return x->ndim == ndim &&
           memcmp(x->dim, dim, (size_t)ndim * sizeof *dim) == 0;
}

mr_array *
mr__rule_result(const mr_node *x, mr_array *got, mr_dtype dtype, int32_t ndim,
                const int64_t *dim, const char *what)
{
    char a[256], b[256];

    if (got == MR_NONE)
        return got;
    if (got && !same_shape(got, ndim, dim))
        got = mr__fail_null(
            MR_E_INTERNAL, "its %s rule gave the shape %s where %s is right",
            what, mr__shape_text(a, sizeof a, got->ndim, got->dim),
            mr__shape_text(b, sizeof b, ndim, dim));
    if (got && got->dtype != dtype)
        got = mr_astype(got, dtype);
    if (!got)
        mr__error_annotate(x->op->name, x->site, "in its %s rule", what);
    return got;
}

bool
mr__op_has_rule(const mr_op *op, mr_rule_kind kind)
{
    const int flat = MR_FLAG_ZERO_GRADIENT | MR_FLAG_NOT_DIFFERENTIABLE;

    switch (kind) {
    case MR_RULE_VJP:
        return op->vjp || (op->flags & (flat | MR_FLAG_IDENTITY));
    case MR_RULE_JVP:
        return op->jvp || (op->flags & (flat | MR_FLAG_IDENTITY));
    case MR_RULE_VMAP:
        return op->vmap || (op->flags & MR_FLAG_IDENTITY);
    }
    return false;
}
