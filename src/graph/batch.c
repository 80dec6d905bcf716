/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.c -- help for vmap rules.
 *
 * Called by: rules in ops/, transform/vmap.c.  Calls: public operators.
 */
#include <assert.h>

#include "base/error.h"
#include "graph/op.h"
#include "marram/ops.h"

/* The inputs of elementwise operators that have this many or fewer lie on the
 * stack; there are none with more. */
enum { MOST_OPERANDS = 8 };

mr_array *
mr__batch_in(const mr_batch *b, int i)
{
    mr_array *x = b->in[i];
    int64_t dim[MR_MAX_NDIM];
    int32_t ndim;

    if (x == NULL || b->batched[i])
        return x;
    ndim = x->ndim;
    if (ndim == MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE,
                             "vmap adds an axis, and %d axes are the most",
                             MR_MAX_NDIM);
    dim[0] = b->size;
    for (int32_t k = 0; k < ndim; k++)
        dim[k + 1] = x->dim[k];
    x = mr_expand_dims(x, MR_AXES(0));
    return mr_broadcast_to(x, (mr_shape){dim, ndim + 1});
}

mr_array *
mr__vmap_elementwise(const mr_batch *b)
{
    const mr_node *n = b->node;
    mr_array *in[MOST_OPERANDS];

    assert(b->n_in <= MOST_OPERANDS);
    for (int i = 0; i < b->n_in; i++) {
        in[i] = mr__batch_in(b, i);
        if (in[i] == NULL)
            return NULL;
    }
    if (n->params || n->op->n_out > 1)
        return mr__node_new(n->op, mr__params(n), b->n_in, in);
    return mr__node_elementwise(n->op, (mr_dtype)n->dtype, b->n_in, in);
}
