/* SPDX-License-Identifier: Apache-2.0
 *
 * core_ops.c -- the five operators that the graph itself needs: data,
 * placeholder, tracer, output, result.
 *
 * Their ids are fixed here and reserved by the generator.
 * Called by: through their descriptors.  Calls: node.h.
 */
#include "graph/op.h"

enum {
    ID_DATA = 1,
    ID_PLACEHOLDER = 2,
    ID_TRACER = 3,
    ID_OUTPUT = 4,
    ID_RESULT = 371
};

/* ---- data --------------------------------------------------------------- */
/* Holds a value; there is nothing to infer or to compute. */
const mr_op mr__op_data = {
    .id = ID_DATA,
    .version = 1,
    .name = "data",
};

/* ---- placeholder -------------------------------------------------------- */
/* A tracer whose value comes when the traced program is called. */
const mr_op mr__op_placeholder = {
    .id = ID_PLACEHOLDER,
    .version = 1,
    .name = "placeholder",
};

/* ---- tracer ------------------------------------------------------------- */
/* Its input, under another identity. */
static mr_code
tracer_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    return MR_OK;
}

static mr_array *
tracer_vjp(const mr_rule *r, int i)
{
    (void)i;
    return r->cotangent[0];
}

static mr_array *
tracer_jvp(const mr_rule *r, int i)
{
    return r->tangent[i];
}

static mr_array *
tracer_vmap(const mr_batch *b)
{
    return b->in[0];
}

static bool
tracer_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    (void)n;
    *out = *in;
    return true;
}

const mr_op mr__op_tracer = {
    .id = ID_TRACER,
    .version = 1,
    .n_in = 1,
    .flags = MR_FLAG_LINEAR | MR_FLAG_IDENTITY,
    .name = "tracer",
    .fuse = {MR_FUSE_VIEW, 0},
    .infer = tracer_infer,
    .vjp = tracer_vjp,
    .jvp = tracer_jvp,
    .vmap = tracer_vmap,
    .view = tracer_view,
};

/* ---- output ------------------------------------------------------------- */
/* Result `index` of a tuple node.  Walks see through it, so it has no rules of
 * its own. */
static const mr_field output_fields[] = {
    MR_FIELD(1, INT, mr_output_params, index),
};

static mr_code
output_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_output_params *p = c->params;
    const mr_tuple_out *t = &c->in[0]->tuple[p->index];

    mr__aval_shape(out, t->dtype, t->ndim, t->dim);
    return MR_OK;
}

const mr_op mr__op_output = {
    .id = ID_OUTPUT,
    .version = 1,
    .n_in = 1,
    .flags = MR_FLAG_LINEAR,
    .n_fields = 1,
    .params_bytes = sizeof(mr_output_params),
    .name = "output",
    .fields = output_fields,
    .infer = output_infer,
};

/* ---- result -------------------------------------------------------------- */
/* Result `index` of a tuple that forwards its values.  To evaluation it is the
 * value; walks follow the tuple. */
const mr_op mr__op_result = {
    .id = ID_RESULT,
    .version = 1,
    .n_in = 1,
    .flags = MR_FLAG_LINEAR | MR_FLAG_IDENTITY,
    .n_fields = 1,
    .params_bytes = sizeof(mr_output_params),
    .name = "result",
    .fields = output_fields,
    .fuse = {MR_FUSE_VIEW, 0},
    .infer = tracer_infer,
    .view = tracer_view,
};
