/* SPDX-License-Identifier: Apache-2.0
 *
 * info.c -- which operator brings which rule, for tools.
 */
#include "marram/sys/info.h"

#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "graph/op.h"
#include "transform/walk.h"

static mr_rule_source
derivative(const mr_op *op, mr_rule_kind kind)
{
    if (mr__op_has_rule(op, kind))
        return MR_RULE_OWN;
    if (op->flags & MR_FLAG_NOT_DIFFERENTIABLE)
        return MR_RULE_NONE;
    return MR_RULE_FALLBACK;
}

/* The graph's own: every walk knows what to do with them. */
static bool
is_graph_own(const mr_op *op)
{
    return op == &mr__op_data || op == &mr__op_placeholder ||
           op == &mr__op_output;
}

/* Descriptors in the order of their ids, gaps left out. */
static const mr_op *
operator_at(int i)
{
    for (int id = 0; id < mr__op_count; id++)
        if (mr__op_table[id] != NULL && i-- == 0)
            return mr__op_table[id];
    return NULL;
}

mr_code
mr_op_info_at(int i, mr_op_info *out)
{
    const mr_op *op = i < 0 ? NULL : operator_at(i);
    mr_op_info info = {.size = sizeof info};

    if (op == NULL)
        return mr__fail(MR_E_INDEX, "there is no operator %d", i);
    info.name = op->name;
    info.id = op->id;
    if (!is_graph_own(op)) {
        info.vjp = derivative(op, MR_RULE_VJP);
        info.jvp = derivative(op, MR_RULE_JVP);
        info.vmap = mr__op_has_rule(op, MR_RULE_VMAP) || op->n_in == 0
                        ? MR_RULE_OWN
                        : MR_RULE_FALLBACK;
    }
    info.fuses = op->fuse.kind != MR_FUSE_NONE;
    return mr__sized_give(out, &info, sizeof info, "mr_op_info");
}
