/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c -- the operator that runs a compiled program.
 *
 * Its first input is the program's holder, the others are the call's
 * arguments.  Steps run one after the other on the thread that runs the task;
 * each spreads itself over the pool.
 *
 * On a device with queues all steps are put into one, in order; captured arrays
 * are inputs of the node then, so that the planner brings them there.
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
#include "marram/error.h"

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

static const mr_device_table *
compiled_device(const mr_node *n)
{
    return mr__program_of(n->in[0])->device;
}

static const void *
compiled_plan(const mr_node *n, const mr_kernel_args *a, uint64_t given,
              mr_arena *arena)
{
    return mr__program_layout(n->in[0]->buffer->data, a, given, arena);
}

static const void *
compiled_plan_kept(const mr_node *n, const mr_kernel_args *a)
{
    return mr__program_kept(mr__program_of(n->in[0]), a);
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
        if (__builtin_expect(x->error != NULL, 0)) /* it failed: not read */
            return NULL;
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

/* Of a joined step: the kernel's own. */
static void
kernel_args(mr_kernel_args *k, mr_kernel_view *v, const mr_kernel_args *a,
            const mr_step *s, const mr_task_operand *in,
            const mr_task_operand *out)
{
    int n_in = mr__step_kernel_inputs(s), n_out = s->n_out;

    if (mr__step_is_joined(s)) {
        out = in + n_in + s->block->product;
        n_out = 1;
    }
    mr__operand_views(v, n_in, in, n_out, out);
    *k = (mr_kernel_args){.op = s->node->op,
                          .params = s->node->params,
                          .n_in = n_in,
                          .n_out = n_out,
                          .in = v,
                          .out = v + n_in,
                          .workspace = step_workspace(a, s)};
}

/* A joined step's operands lie as it was built for, or not. */
enum as { AS_BUILT, AS_THEY_ARE };

/* Apart, so that other kernels need no room for a launch. */
static __attribute__((noinline)) mr_code
run_joined(const mr_step *s, mr_kernel_args *k, const mr_task_operand *in,
           const mr_task_operand *out, enum as as)
{
    mr_block_launch l;
    mr_epilogue e = {.code = &s->block->code, .launch = &l};

    if (as == AS_BUILT) {
        e.ready = s->ready;
        e.pieces = mr__tier1_ready(s);
    }
    mr__block_launch_rows(s->block, in + k->n_in, out, &l);
    k->epilogue = &e;
    return s->kernel->run(k);
}

static mr_code
run_kernel(const mr_kernel_args *a, const mr_step *s, const mr_task_operand *in,
           const mr_task_operand *out, enum as as)
{
    mr_kernel_view *v =
        mr__alloc_array((size_t)(s->n_in + s->n_out + 1), sizeof *v);
    mr_kernel_args k;
    mr_code rc;

    if (v == NULL)
        return MR_E_MEMORY;
    kernel_args(&k, v, a, s, in, out);
    rc = mr__step_is_joined(s) ? run_joined(s, &k, in, out, as)
                               : s->kernel->run(&k);
    mr__dealloc(v);
    return rc;
}

mr_code
mr__step_run_joined(const mr_kernel_args *a, const mr_step *s,
                    const mr_task_operand *in, const mr_task_operand *out)
{
    return run_kernel(a, s, in, out, AS_THEY_ARE);
}

bool
mr__step_operands(mr_step_operands *f, const mr_program *p,
                  const mr_kernel_args *a, const mr_step *s)
{
    f->o = f->few;
    if (s->n_in + s->n_out > 64) {
        f->o = mr__alloc_array((size_t)(s->n_in + s->n_out), sizeof *f->o);
        if (f->o == NULL)
            return false;
    }
    fill(p, a, s->n_in, s->in, f->o);
    fill(p, a, s->n_out, s->out, f->o + s->n_in);
    return true;
}

void
mr__step_operands_end(mr_step_operands *f)
{
    if (f->o != f->few)
        mr__dealloc(f->o);
}

static __attribute__((noinline)) mr_code
run_operands(const mr_program *p, const mr_kernel_args *a, const mr_step *s)
{
    mr_step_operands f;
    mr_code rc;

    if (!mr__step_operands(&f, p, a, s))
        return MR_E_MEMORY;
    if (s->kernel != NULL)
        rc = run_kernel(a, s, f.o, f.o + s->n_in, AS_BUILT);
    else if (s->block != NULL)
        rc = mr__run_block(p->device, s->block, f.o, f.o + s->n_in);
    else
        rc = mr__run_copy(p->device, &f.o[0], &f.o[s->n_in]);
    mr__step_operands_end(&f);
    return rc;
}

static inline mr_code
run_step(const mr_program *p, const mr_kernel_args *a, const mr_step *s)
{
    return s->ready != NULL && s->kernel == NULL ? run_ready(p, a, s)
                                                 : run_operands(p, a, s);
}

/* In the checking mode. */
static __attribute__((cold)) mr_code
check_step(const mr_program *p, const mr_kernel_args *a, const mr_step *s)
{
    mr_step_operands f;
    mr_code rc;

    if (!mr__step_operands(&f, p, a, s))
        return MR_E_MEMORY;
    rc = mr__check_outputs(s->node, s->block != NULL ? &s->block->code : NULL,
                           s->n_in, f.o, s->n_out, f.o + s->n_in);
    mr__step_operands_end(&f);
    return rc;
}

static mr_code
failed_in(const mr_array *x, mr_code rc)
{
    mr__error_annotate(mr__op_label(x->op), x->site,
                       "inside a compiled function");
    return rc;
}

/* What follows when a step failed, or is looked at in the checking mode.  Steps
 * take their little scratch before they write, so one that had no memory for it
 * can run again: when nothing else can give some back. */
static __attribute__((cold, noinline)) mr_code
look_at_step(const mr_program *p, const mr_kernel_args *a, const mr_step *s,
             mr_code rc)
{
    if (rc == MR_E_MEMORY) {
        mr_error_take();
        mr__pool_trim(p->device->pool(p->device->self), 0);
        rc = run_step(p, a, s);
    }
    return rc == MR_OK && mr__checking() ? check_step(p, a, s) : rc;
}

__attribute__((cold)) mr_code
mr__step_run(const mr_program *p, const mr_kernel_args *a, const mr_step *s)
{
    return look_at_step(p, a, s, run_step(p, a, s));
}

static mr_code
compiled_run(const void *plan, const mr_kernel_args *a)
{
    const mr_program *p = plan;

    if (__builtin_expect(a->partial->in != NULL || p->lacks_const, 0))
        return mr__program_go_on(p, a, 0, MR_OK);
    for (int i = 0; i < p->n_steps; i++) {
        const mr_step *s = &p->steps[i];
        mr_code rc = run_step(p, a, s);

        if (__builtin_expect(rc != MR_OK || mr__checking(), 0))
            rc = look_at_step(p, a, s, rc);
        if (__builtin_expect(rc != MR_OK, 0))
            return mr__program_go_on(p, a, i, rc);
    }
    mr__tier1_ran(p);
    return MR_OK;
}

/* ---- on a device with queues
 * ------------------------------------------------------------------ */

static bool
compiled_as_it_lies(const mr_node *n, int i)
{
    const mr_program *p = mr__program_of(n->in[0]);

    /* captured arrays lie as the program was built for */
    return i > p->n_args || mr__program_has_layouts(p);
}

static size_t
compiled_launch_bytes(const void *plan)
{
    return ((const mr_program *)plan)->launch_bytes;
}

size_t
mr__step_launch_bytes(const mr_program *p, const mr_step *s)
{
    static char here;
    bool watched = mr__step_watch(p, s, &here) != NULL;

    if (s->kernel == NULL)
        return 0;
    return (watched ? sizeof(mr_step_watch) : 0) + sizeof(mr_kernel_args) +
           (size_t)(s->n_in + s->n_out + 1) * sizeof(mr_kernel_view);
}

/* On a thread of the provider's: the error is of a launch since the last event,
 * and has its operator's name. */
static void
watch_done(mr_event *e, mr_code rc)
{
    mr_error_record **why = (mr_error_record **)(void *)(e + 1);

    if (rc != MR_OK)
        *why = mr__error_capture();
}

static void
watch(const mr_program *p, void *queue, mr_event *e)
{
    e->done = watch_done;
    p->device->record(p->device->self, queue, e);
}

/* What a kernel's launch refers to lies at `memory`. */
static mr_code
launch_step(const mr_program *p, const mr_kernel_args *a, const mr_step *s,
            void *queue, void *memory)
{
    mr_launch l = {.workspace = step_workspace(a, s), .origin = s->node};
    mr_kernel_args *k = memory;
    mr_block_launch block;
    mr_step_operands f;
    mr_code rc;

    if (!mr__step_operands(&f, p, a, s))
        return MR_E_MEMORY;
    if (s->kernel != NULL) {
        kernel_args(k, (mr_kernel_view *)(k + 1), a, s, f.o, f.o + s->n_in);
        l.kernel = s->kernel;
        l.args = k;
    } else if (s->block != NULL) {
        mr__block_launch_make(s->block, f.o, f.o + s->n_in, &block);
        l.code = &s->block->code;
        l.block = &block;
    } else {
        l.code = mr__copy_launch(&f.o[0], &f.o[s->n_in], &block);
        l.block = &block;
    }
    rc = p->device->launch(p->device->self, queue, &l);
    if (rc == MR_E_MEMORY) { /* nothing was put there */
        mr_error_take();
        mr__pool_trim(p->device->pool(p->device->self), 0);
        rc = p->device->launch(p->device->self, queue, &l);
    }
    mr__step_operands_end(&f);
    return rc;
}

/* When a launch is refused those before it stay in the queue: they write into
 * the call's own memory, which waits for them. */
static mr_code
compiled_launch(const void *plan, const mr_kernel_args *a, void *queue,
                void *memory)
{
    const mr_program *p = plan;
    bool asked = true; /* after all that stands before */
    char *at = memory;

    for (int i = 0; i < p->n_steps; i++) {
        const mr_step *s = &p->steps[i];
        mr_step_watch *w = mr__step_watch(p, s, at);
        mr_code rc;

        if (w != NULL && !asked)
            watch(p, queue, &w->before.event);
        rc = launch_step(p, a, s, queue, at + (w != NULL ? sizeof *w : 0));
        if (rc != MR_OK)
            return failed_in(s->node, rc);
        if (w != NULL)
            watch(p, queue, &w->at.event);
        asked = w != NULL;
        at += mr__step_launch_bytes(p, s);
    }
    return MR_OK;
}

static mr_code
compiled_landed(const void *plan, const mr_kernel_args *a, void *memory)
{
    return mr__program_ran(plan, a, memory);
}

static const mr_op_exec compiled_exec = {
    .n_host = 1, /* the holder */
    .does_without = true,
    .device = compiled_device,
    .plan = compiled_plan,
    .plan_kept = compiled_plan_kept,
    .lies_in = compiled_lies_in,
    .workspace = compiled_workspace,
    .cost = compiled_cost,
    .run = compiled_run,
    .as_it_lies = compiled_as_it_lies,
    .launch_bytes = compiled_launch_bytes,
    .launch = compiled_launch,
    .landed = compiled_landed,
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
