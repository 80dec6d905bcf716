/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c -- the operator that runs a compiled program.
 *
 * Its first input is the program's holder, the others are the call's
 * arguments.  Steps run one after the other on the thread that runs the task;
 * each spreads itself over the pool.
 *
 * Called by: eval/ through mr_op_exec.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compile/steps.h"
#include "compile/tier1.h"
#include "eval/check.h"
#include "graph/read.h"

const mr_program *
mr__program_of(const mr_array *holder)
{
    return holder->buffer->data;
}

static mr_code
compiled_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_program *p = mr__program_of(c->in[0]);

    for (int k = 0; k < p->n_out; k++)
        mr__aval_shape(&out[k], p->outs[k].dtype, p->outs[k].ndim,
                       p->outs[k].dim);
    return MR_OK;
}

static const void *
compiled_plan(const mr_node *n, const mr_kernel_args *a, uint64_t given,
              mr_arena *arena)
{
    return mr__program_layout(n->in[0]->buffer->data, a, given, arena);
}

static int
compiled_lies_in(const void *plan, int k)
{
    int i = ((const mr_program *)plan)->lies_in[k];

    return i < 0 ? -1 : i + 1; /* the holder stands in front */
}

static size_t
compiled_workspace(const void *plan)
{
    return ((const mr_program *)plan)->workspace;
}

static double
compiled_cost(const void *plan)
{
    return ((const mr_program *)plan)->cost;
}

/* Where a slot lies in this call. */
static char *
slot_data(const mr_program *p, const mr_kernel_args *a, const mr_slot *s)
{
    switch (s->kind) {
    case MR_SLOT_ARG:
        return (char *)a->in[s->index + 1].data + s->byte_offset;
    case MR_SLOT_CONST: {
        const mr_array *x = p->consts[s->index];

        if (x->flags & MR_NODE_SCALAR_CONST) /* only read */
            return (char *)(uintptr_t)mr__scalar_const(x);
        /* on the host since the program was built; only read */
        return (char *)(uintptr_t)mr__array_first(x) + s->byte_offset;
    }
    case MR_SLOT_TEMP:
        return (char *)a->workspace + s->byte_offset;
    case MR_SLOT_OUT:
        return (char *)a->out[s->index].data + s->byte_offset;
    default:
        return NULL;
    }
}

void
mr__slot_operand(const mr_slot *s, void *data, mr_task_operand *o)
{
    memset(o, 0, sizeof *o);
    o->data = data;
    o->dtype = s->dtype;
    o->ndim = s->ndim;
    o->size = s->size;
    o->dim = s->dim;
    o->stride = s->stride;
}

static void
fill(const mr_program *p, const mr_kernel_args *a, int n, const mr_slot *slots,
     mr_task_operand *o)
{
    for (int i = 0; i < n; i++)
        mr__slot_operand(&slots[i], slot_data(p, a, &slots[i]), &o[i]);
}

static void *
step_workspace(const mr_kernel_args *a, const mr_step *s)
{
    return s->workspace < 0 ? NULL : (char *)a->workspace + s->workspace;
}

/* A block that was made ready: nothing but the memory is new. */
static mr_code
run_ready(const mr_program *p, const mr_kernel_args *a, const mr_step *s)
{
    void *in[MR_CODE_MAX_IO], *out[MR_CODE_MAX_IO];
    const void *native;

    for (int i = 0; i < s->n_in; i++)
        in[i] = slot_data(p, a, &s->in[i]);
    for (int i = 0; i < s->n_out; i++)
        out[i] = slot_data(p, a, &s->out[i]);
    native = mr__tier1_ready(s);
    return p->device->run_ready(native != NULL ? native : s->ready, in, out,
                                step_workspace(a, s));
}

static mr_code
run_kernel(const mr_program *p, const mr_kernel_args *a, const mr_step *s,
           const mr_task_operand *in, const mr_task_operand *out)
{
    mr_kernel_view *v =
        mr__alloc_array((size_t)(s->n_in + s->n_out + 1), sizeof *v);
    mr_kernel_args k;
    mr_code rc;

    (void)p;
    if (v == NULL)
        return MR_E_MEMORY;
    for (int i = 0; i < s->n_in; i++)
        mr__operand_view(&v[i], &in[i]);
    for (int i = 0; i < s->n_out; i++)
        mr__operand_view(&v[s->n_in + i], &out[i]);
    k = (mr_kernel_args){.op = s->node->op,
                         .params = s->node->params,
                         .n_in = s->n_in,
                         .n_out = s->n_out,
                         .in = v,
                         .out = v + s->n_in,
                         .workspace = step_workspace(a, s)};
    rc = s->kernel->run(&k);
    mr__dealloc(v);
    return rc;
}

#define FEW_OPERANDS 64

static mr_code
run_step(const mr_program *p, const mr_kernel_args *a, const mr_step *s)
{
    mr_task_operand few[FEW_OPERANDS], *o = few;
    mr_code rc;

    if (s->ready != NULL)
        return run_ready(p, a, s);
    if (s->n_in + s->n_out > FEW_OPERANDS) {
        o = mr__alloc_array((size_t)(s->n_in + s->n_out), sizeof *o);
        if (o == NULL)
            return MR_E_MEMORY;
    }
    fill(p, a, s->n_in, s->in, o);
    fill(p, a, s->n_out, s->out, o + s->n_in);
    if (s->block != NULL)
        rc = mr__run_block(p->device, s->block, o, o + s->n_in);
    else if (s->kernel != NULL)
        rc = run_kernel(p, a, s, o, o + s->n_in);
    else
        rc = mr__run_copy(p->device, &o[0], &o[s->n_in]);
    if (o != few)
        mr__dealloc(o);
    return rc;
}

/* In the checking mode. */
static __attribute__((cold)) mr_code
check_step(const mr_program *p, const mr_kernel_args *a, const mr_step *s)
{
    int n = s->n_in + s->n_out;
    mr_kernel_view *v = mr__alloc_array((size_t)n + 1, sizeof *v);
    mr_task_operand o;
    mr_code rc;

    if (v == NULL)
        return MR_E_MEMORY;
    for (int i = 0; i < n; i++) {
        const mr_slot *slot = i < s->n_in ? &s->in[i] : &s->out[i - s->n_in];

        mr__slot_operand(slot, slot_data(p, a, slot), &o);
        mr__operand_view(&v[i], &o);
    }
    rc = mr__check_outputs(s->node, s->block != NULL ? &s->block->code : NULL,
                           s->n_in, v, s->n_out, v + s->n_in);
    mr__dealloc(v);
    return rc;
}

static mr_code
compiled_run(const void *plan, const mr_kernel_args *a)
{
    const mr_program *p = plan;

    for (int i = 0; i < p->n_steps; i++) {
        mr_code rc = run_step(p, a, &p->steps[i]);

        if (rc == MR_OK && mr__checking())
            rc = check_step(p, a, &p->steps[i]);

        if (rc != MR_OK) {
            mr__error_annotate(mr__op_label(p->steps[i].node->op),
                               p->steps[i].node->site,
                               "inside a compiled function");
            return rc;
        }
    }
    mr__tier1_ran(p);
    return MR_OK;
}

static const mr_op_exec compiled_exec = {
    .plan = compiled_plan,
    .lies_in = compiled_lies_in,
    .workspace = compiled_workspace,
    .cost = compiled_cost,
    .run = compiled_run,
};

const mr_op mr__op_compiled = {
    .id = 5,
    .n_in = -1,
    .n_out = 1, /* the program says how many: see mr__node_tuple_new */
    .flags = MR_FLAG_NOT_DIFFERENTIABLE,
    .name = "compiled",
    .infer = compiled_infer,
    .exec = &compiled_exec,
};
