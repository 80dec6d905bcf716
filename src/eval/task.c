/* SPDX-License-Identifier: Apache-2.0
 *
 * task.c -- running a task and completing it.
 *
 * Completion, in this order: the kernel's last write; the states of the
 * nodes, with release; waking who waits; dropping the nodes' inputs, unless a
 * live trace wants them; dropping the task's own references.
 *
 * Called by: stream.c, under no lock.
 */
#include "eval/task.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "eval/fork.h"
#include "eval/plan.h"
#include "eval/stats.h"
#include "eval/wait.h"
#include "marram/error.h"

/* ---- windows ----------------------------------------------------------------
 */

mr_window *
mr__window_new(void)
{
    mr_window *w = mr__alloc_zero(sizeof *w);

    if (w != NULL)
        atomic_init(&w->refs, 1);
    return w;
}

void
mr__window_release(mr_window *w)
{
    /* acq_rel: the last one frees what the others wrote */
    if (w == NULL ||
        atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1)
        return;
    mr__arena_free(&w->arena);
    mr__dealloc(w);
}

/* ---- what is in flight
 * ---------------------------------------------------------- */

static struct {
    _Atomic int64_t in_flight;
    _Atomic int32_t sleepers;
    mr_lock lock;
    mr_cond cond;
    uint64_t finished; /* guarded by lock; counts while somebody sleeps */
} work = {.lock = MR_LOCK_INIT(MR_RANK_EVENT, "work"), .cond = MR_COND_INIT};

int64_t
mr__tasks_in_flight(void)
{
    /* acquire: pairs with the release in mr__tasks_left */
    return atomic_load_explicit(&work.in_flight, memory_order_acquire);
}

void
mr__tasks_entered(int64_t n)
{
    /* relaxed: a count */
    atomic_fetch_add_explicit(&work.in_flight, n, memory_order_relaxed);
}

void
mr__tasks_left(void)
{
    /* seq_cst on both counters: either the sleeper sees the new count, or we
     * see the sleeper */
    atomic_fetch_sub_explicit(&work.in_flight, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&work.sleepers, memory_order_seq_cst) == 0)
        return;
    mr__lock_take(&work.lock);
    work.finished++;
    mr__cond_wake_all(&work.cond);
    mr__lock_drop(&work.lock);
}

void
mr__tasks_wait_progress(int64_t below, int64_t ns)
{
    uint64_t seen;
    bool patient = true;

    mr__lock_take(&work.lock);
    atomic_fetch_add_explicit(&work.sleepers, 1, memory_order_seq_cst);
    seen = work.finished;
    while (atomic_load_explicit(&work.in_flight, memory_order_seq_cst) >=
               below &&
           work.finished == seen && patient) {
        if (ns == 0)
            mr__cond_wait(&work.cond, &work.lock);
        else
            patient = mr__cond_wait_for(&work.cond, &work.lock, ns);
    }
    atomic_fetch_sub_explicit(&work.sleepers, 1, memory_order_seq_cst);
    mr__lock_drop(&work.lock);
}

/* ---- running
 * -------------------------------------------------------------------- */

static int64_t
stride_bytes(const mr_task_operand *o, int axis)
{
    return axis < 0 ? 0 : o->stride[axis] * mr__dtype_size(o->dtype);
}

static void
fill_input(const mr_block_group *b, const mr_task_operand *o, mr_block_io *io)
{
    io->data = o->data;
    for (int d = 0; d < b->n_kept + b->n_red; d++) {
        int axis = b->axis[d];
        bool broadcast = axis >= 0 && o->dim[axis] != b->dim[d];

        io->stride[d] = broadcast ? 0 : stride_bytes(o, axis);
    }
}

/* A row output that lost its reduced axes: its axes and the kept dims are the
 * same in order, apart from those of size 1 (which may be reduced too). */
static void
fill_squeezed(const mr_block_group *b, const mr_task_operand *o,
              mr_block_io *io)
{
    int axis = 0;

    for (int d = 0; d < b->n_kept; d++) {
        io->stride[d] = 0;
        if (b->dim[d] == 1)
            continue;
        while (o->dim[axis] == 1)
            axis++;
        io->stride[d] = stride_bytes(o, axis++);
    }
}

static void
fill_output(const mr_block_group *b, const mr_task_operand *o, bool per_row,
            mr_block_io *io)
{
    int n = per_row ? b->n_kept : b->n_kept + b->n_red;

    io->data = o->data;
    if (o->ndim != b->ndim) {
        fill_squeezed(b, o, io);
        return;
    }
    for (int d = 0; d < n; d++)
        io->stride[d] = stride_bytes(o, b->axis[d]);
}

void
mr__block_launch_make(const mr_block_group *b, const mr_task_operand *in,
                      const mr_task_operand *out, mr_block_launch *l)
{
    l->n_kept = b->n_kept;
    l->n_red = b->n_red;
    memcpy(l->dim, b->dim, (size_t)(b->n_kept + b->n_red) * sizeof *l->dim);
    for (int i = 0; i < b->code.n_in; i++)
        fill_input(b, &in[i], &l->in[i]);
    for (int i = 0; i < b->code.n_out; i++)
        fill_output(b, &out[i], b->code.out[i].per_row, &l->out[i]);
    mr__block_normalise(&b->code, l);
}

mr_code
mr__run_block(const mr_device_table *device, const mr_block_group *block,
              const mr_task_operand *in, const mr_task_operand *out)
{
    mr_block_launch l;

    mr__block_launch_make(block, in, out, &l);
    return device->run_block(&block->code, &l);
}

mr_code
mr__run_copy(const mr_device_table *device, const mr_task_operand *in,
             const mr_task_operand *out)
{
    const uint8_t dtype[2] = {(uint8_t)in->dtype, (uint8_t)in->dtype};
    const uint8_t row[2] = {0, 0};
    const mr_inst inst = {.k = MR_K_COPY, .dst = 1};
    const mr_code_out code_out = {.reg = 1};
    const mr_block_code code = {.n_in = 1,
                                .n_inst = 1,
                                .n_out = 1,
                                .n_reg = 2,
                                .n_phases = 1,
                                .reg_dtype = dtype,
                                .reg_row = row,
                                .inst = &inst,
                                .out = &code_out};
    mr_block_launch l;
    int64_t fresh[MR_MAX_NDIM];

    l.n_kept = in->ndim;
    l.n_red = 0;
    memcpy(l.dim, in->dim, (size_t)in->ndim * sizeof *l.dim);
    l.in[0].data = in->data;
    l.out[0].data = out->data;
    mr__strides_fresh(in->ndim, in->dim, fresh);
    for (int d = 0; d < in->ndim; d++) {
        l.in[0].stride[d] = stride_bytes(in, d);
        l.out[0].stride[d] = fresh[d] * mr__dtype_size(in->dtype);
    }
    mr__block_normalise(&code, &l);
    return device->run_block(&code, &l);
}

static mr_code
run_block(const mr_task *t)
{
    if (t->block == NULL)
        return mr__run_copy(t->device, &t->in[0], &t->out[0]);
    return mr__run_block(t->device, t->block, t->in, t->out);
}

void
mr__operand_view(mr_kernel_view *v, const mr_task_operand *o)
{
    v->data = o->data;
    v->dtype = o->dtype;
    v->ndim = o->ndim;
    v->size = o->size;
    v->dim = o->dim;
    v->stride = o->stride;
}

bool
mr__task_args(mr_task *t)
{
    mr_kernel_view *v = mr__arena_alloc(
        &t->window->arena, (size_t)(t->n_in + t->n_out + 1) * sizeof *v);

    if (v == NULL)
        return false;
    for (int i = 0; i < t->n_in; i++)
        mr__operand_view(&v[i], &t->in[i]);
    for (int i = 0; i < t->n_out; i++)
        mr__operand_view(&v[t->n_in + i], &t->out[i]);
    t->args = (mr_kernel_args){.op = t->node->op,
                               .params = t->node->params,
                               .n_in = t->n_in,
                               .n_out = t->n_out,
                               .in = v,
                               .out = v + t->n_in};
    return true;
}

static mr_code
run_kernel(mr_task *t)
{
    if (t->workspace != NULL)
        t->args.workspace = t->workspace->data;
    return t->kernel != NULL ? t->kernel->run(&t->args)
                             : t->node->op->exec->run(t->node, &t->args);
}

/* ---- completing
 * ------------------------------------------------------------------ */

static void
drop_references(mr_task *t)
{
    mr_window *w = t->window;

    for (int i = 0; i < t->n_in; i++) {
        mr__buffer_release(t->in[i].buffer);
        mr__release(t->in[i].keep);
    }
    for (int i = 0; i < t->n_out; i++)
        mr__buffer_release(t->out[i].buffer);
    mr__buffer_release(t->workspace);
    mr__error_release(t->input_error);
    for (int i = 0; i < t->n_done; i++)
        mr__release(t->done[i]);
    mr__release(t->node);
    mr__window_release(w);
}

static void
complete(mr_task *t)
{
    for (int i = 0; i < t->n_done; i++) {
        mr_array *x = t->done[i];

        mr__wait_wake(mr__wait_finish(x, MR_DONE));
        if (x->trace == 0 || !mr__trace_live(x->trace))
            mr__node_detach(x);
    }
}

/* The data's error sticks. */
static void
fail(mr_task *t, mr_error_record *why)
{
    for (int i = 0; i < t->n_done; i++) {
        t->done[i]->error = mr__error_retain(why);
        mr__wait_wake(mr__wait_finish(t->done[i], MR_FAILED));
    }
}

static void
forget_memory(mr_array *x)
{
    if (x->flags & MR_NODE_TUPLE) {
        for (int k = 0; k < x->n_out; k++) {
            mr__buffer_release(x->tuple[k].buffer);
            x->tuple[k].buffer = NULL;
        }
    } else {
        mr__buffer_release(x->buffer);
        x->buffer = NULL;
    }
}

/* An error that says nothing of the data: the nodes may be asked again. */
static void
retract(mr_task *t, mr_error_record *why)
{
    mr_wait_link *woken = NULL, **end = &woken;

    mr__lock_take(&mr__plan_lock);
    mr__defer_user_code_begin();
    for (int i = 0; i < t->n_done; i++) {
        mr_array *x = t->done[i];

        forget_memory(x);
        if (x->error == NULL)
            x->error = mr__error_retain(why);
        *end = mr__wait_finish(x, MR_NEW);
        while (*end != NULL)
            end = &(*end)->next;
    }
    mr__defer_user_code_end();
    mr__lock_drop(&mr__plan_lock);
    mr__wait_wake(woken);
}

static bool
is_transient(mr_code rc)
{
    return rc == MR_E_MEMORY || rc == MR_E_CANCELLED || rc == MR_E_DEVICE;
}

/* Does x still have the memory that was planned for?  After a retraction
 * another plan may have computed it elsewhere.  The operand's reference keeps
 * the address from being used again. */
static bool
is_same_memory(const mr_array *x, const mr_buffer *b)
{
    if (!(x->flags & MR_NODE_TUPLE))
        return x->buffer == b;
    for (int k = 0; k < x->n_out; k++)
        if (x->tuple[k].buffer == b)
            return true;
    return false;
}

/* Why x was given up, as long as nobody has planned it again. */
static mr_error_record *
reason_given_up(const mr_array *x)
{
    mr_error_record *why = NULL;

    mr__lock_take(&mr__plan_lock);
    if (mr__state(x) == MR_NEW && x->error != NULL)
        why = mr__error_retain(x->error);
    mr__lock_drop(&mr__plan_lock);
    if (why != NULL)
        return why;
    mr__fail(MR_E_CANCELLED, "an input was given up and is computed again");
    return mr__error_capture();
}

/* A producer that did not make it: its reason, retained, or NULL. */
static mr_error_record *
input_failure(const mr_task *t)
{
    if (t->input_error != NULL)
        return mr__error_retain(t->input_error);
    for (int i = 0; i < t->n_in; i++) {
        const mr_array *x = t->in[i].keep;

        if (!t->in[i].is_source)
            continue;
        switch (mr__state(x)) {
        case MR_DONE:
            if (is_same_memory(x, t->in[i].buffer))
                continue;
            return reason_given_up(x);
        case MR_FAILED:
            return mr__error_retain(x->error);
        case MR_NEW:
        case MR_SUBMITTED:
        default:
            return reason_given_up(x);
        }
    }
    return NULL;
}

static mr_code
run_once(mr_task *t)
{
    switch (t->kind) {
    case MR_TASK_BLOCK:
        return run_block(t);
    case MR_TASK_KERNEL:
        return run_kernel(t);
    case MR_TASK_ALIAS:
    default:
        return MR_OK;
    }
}

/* Kernels take their little scratch before they write, so one that had no
 * memory for it can run again: when nothing else can give some back. */
static mr_error_record *
run(mr_task *t)
{
    mr_code rc = run_once(t);

    if (rc == MR_E_MEMORY) {
        mr_error_take();
        mr__pool_trim(t->device->pool(), 0);
        rc = run_once(t);
    }
    if (rc == MR_OK)
        return NULL;
    mr__error_annotate(t->node->op->name, t->node->site, "while computing %s",
                       t->node->op->name);
    return mr__error_capture();
}

void
mr__task_run(mr_task *t)
{
    mr_error_record *why = input_failure(t);

    if (why == NULL)
        why = run(t);
    if (why == NULL)
        complete(t);
    else if (is_transient(mr__error_record_code(why)) && !t->destructive)
        retract(t, why);
    else
        fail(t, why);
    if (why != NULL && t->feeds != NULL && t->feeds->input_error == NULL)
        t->feeds->input_error = mr__error_retain(why);
    mr__error_release(why);
    drop_references(t);
    mr__stats_task();
}

void
mr__tasks_fork_child(void)
{
    mr__lock_fork_child(&work.lock);
    work.cond = (mr_cond)MR_COND_INIT;
    /* relaxed: no other thread lives */
    atomic_store_explicit(&work.sleepers, 0, memory_order_relaxed);
}
