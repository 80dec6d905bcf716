/* SPDX-License-Identifier: Apache-2.0
 *
 * task.c -- running a task and completing it.
 *
 * Completion, in this order: the kernel's last write; the states of the
 * nodes, with release; waking who waits; dropping the nodes' inputs, unless a
 * live trace wants them; dropping the task's own references.
 *
 * A task with a flight is launched by the drainer and lands on a thread of the
 * provider's.  Launching does not wait for producers in the same stream: their
 * launches stand before it in the queue.  So whether the inputs are good is
 * asked at landing; what was computed from bad ones is thrown away.
 *
 * Of several results those fail that depend on what failed: partly.c.
 *
 * Called by: stream.c, under no lock.
 */
#include "eval/task.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "eval/check.h"
#include "eval/fork.h"
#include "eval/partly.h"
#include "eval/parts.h"
#include "eval/plan.h"
#include "eval/registry.h"
#include "eval/stats.h"
#include "eval/stream.h"
#include "eval/wait.h"
#include "kernels/draw.h"
#include "kernels/source.h"
#include "marram/error.h"

/* ---- what is in flight
 * ---------------------------------------------------------- */

/* Since the process began.  Every task touches `left`; nothing else that tasks
 * of all threads write is in its line. */
static struct {
    _Atomic uint64_t entered; /* written under the plan lock alone */
    _Alignas(64) _Atomic uint64_t left;
    _Alignas(64) _Atomic int32_t sleepers;
    _Atomic size_t bytes; /* of windows of asynchronous evaluations */
    mr_lock lock;
    mr_cond cond;
    uint64_t finished; /* guarded by lock; counts while somebody sleeps */
} work = {.lock = MR_LOCK_INIT(MR_RANK_EVENT, "work"), .cond = MR_COND_INIT};

uint64_t
mr__tasks_run(void)
{
    /* acquire: pairs with mr__tasks_left; what they held is given back */
    return atomic_load_explicit(&work.left, memory_order_acquire);
}

int64_t
mr__tasks_in_flight(void)
{
    uint64_t left = mr__tasks_run();

    /* relaxed: read after `left`, so never too small */
    return (int64_t)(atomic_load_explicit(&work.entered, memory_order_relaxed) -
                     left);
}

void
mr__tasks_entered(int64_t n)
{
    /* relaxed, both: a count that the plan lock guards; the streams' locks
     * publish it before any of these tasks can leave */
    uint64_t now = atomic_load_explicit(&work.entered, memory_order_relaxed);

    atomic_store_explicit(&work.entered, now + (uint64_t)n,
                          memory_order_relaxed);
}

/* Something ended, by a seq_cst operation: either the sleeper sees it, or we
 * see the sleeper. */
static void
wake_sleepers(void)
{
    if (atomic_load_explicit(&work.sleepers, memory_order_seq_cst) == 0)
        return;
    mr__lock_take(&work.lock);
    work.finished++;
    mr__cond_wake_all(&work.cond);
    mr__lock_drop(&work.lock);
}

void
mr__tasks_left(void)
{
    /* seq_cst: see wake_sleepers */
    atomic_fetch_add_explicit(&work.left, 1, memory_order_seq_cst);
    wake_sleepers();
}

size_t
mr__bytes_in_flight(void)
{
    /* relaxed: a figure; who sees it late looks again when a task ends */
    return atomic_load_explicit(&work.bytes, memory_order_relaxed);
}

/* A window is over; its last task may have been counted before. */
static void
bytes_left(size_t bytes)
{
    /* seq_cst: see wake_sleepers */
    atomic_fetch_sub_explicit(&work.bytes, bytes, memory_order_seq_cst);
    wake_sleepers();
}

/* For who sleeps: see mr__tasks_left. */
static int64_t
in_flight_now(void)
{
    uint64_t left = atomic_load_explicit(&work.left, memory_order_seq_cst);

    /* relaxed: read after `left`, so never too small */
    return (int64_t)(atomic_load_explicit(&work.entered, memory_order_relaxed) -
                     left);
}

void
mr__tasks_wait_progress(int64_t below, int64_t ns)
{
    uint64_t seen;
    bool patient = true;

    mr__lock_take(&work.lock);
    atomic_fetch_add_explicit(&work.sleepers, 1, memory_order_seq_cst);
    seen = work.finished;
    while (in_flight_now() >= below && work.finished == seen && patient) {
        if (ns == 0)
            mr__cond_wait(&work.cond, &work.lock);
        else
            patient = mr__cond_wait_for(&work.cond, &work.lock, ns);
    }
    atomic_fetch_sub_explicit(&work.sleepers, 1, memory_order_seq_cst);
    mr__lock_drop(&work.lock);
}

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
mr__window_count(mr_window *w, size_t bytes)
{
    w->bytes = bytes;
    /* relaxed: a figure; what takes it back comes after a release of `refs` */
    atomic_fetch_add_explicit(&work.bytes, bytes, memory_order_relaxed);
}

void
mr__window_release(mr_window *w)
{
    /* acq_rel: the last one frees what the others wrote */
    if (w == NULL ||
        atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (w->bytes > 0)
        bytes_left(w->bytes);
    mr__arena_free(&w->arena);
    mr__dealloc(w);
}

/* ---- running
 * -------------------------------------------------------------------- */

static int64_t
stride_bytes(const mr_task_operand *o, int axis)
{
    return axis < 0 ? 0 : o->stride[axis] * mr__dtype_size(o->dtype);
}

/* What is read or put through an index, and the index; or values of rows that
 * lack axes. */
static void
fill_gathered(const mr_block_group *b, int i, const mr_task_operand *o,
              mr_block_io *io)
{
    const mr_code_source *s;

    io->data = o->data;
    for (int d = 0; d < b->n_kept + b->n_red; d++)
        io->stride[d] =
            b->axis[d] < 0 ? 0 : stride_bytes(o, b->in[i].axis[b->axis[d]]);
    if (b->code.source == NULL)
        return;
    s = &b->code.source[i];
    if (s->kind == MR_FROM_GATHER) {
        io->step = stride_bytes(o, s->axis);
        io->n = o->dim[s->axis];
    }
    for (int d = 0; s->kind == MR_FROM_PUT && d < b->n_kept + b->n_red; d++)
        if (b->axis[d] == s->axis)
            io->n = b->dim[d];
}

/* Random words: the operand has keys, and the strides are those of streams
 * that would lie one behind the other. */
static void
fill_drawn(const mr_block_group *b, int i, const mr_task_operand *keys,
           mr_block_io *io)
{
    int64_t size = mr__dtype_size((mr_dtype)b->code.reg_dtype[i]);
    int64_t stride[MR_MAX_NDIM];
    int batch = keys->ndim - 1, n = b->n_kept + b->n_red;

    io->n = size;
    for (int d = n - 1; d >= 0; d--) {
        stride[d] = io->n;
        if (d >= batch)
            io->n *= b->dim[d];
    }
    io->data = keys->data;
    io->step = batch > 0 ? stride_bytes(keys, 0) : 0;
    io->word = stride_bytes(keys, batch);
    for (int d = 0; d < n; d++)
        io->stride[d] = d < batch ? mr__draw_pitch(io->n) : stride[d];
}

static void
fill_input(const mr_block_group *b, int i, const mr_task_operand *o,
           mr_block_io *io)
{
    if (b->code.source != NULL && b->code.source[i].kind == MR_FROM_DRAW) {
        fill_drawn(b, i, o, io);
        return;
    }
    if (b->in[i].axis != NULL) {
        fill_gathered(b, i, o, io);
        return;
    }
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

static void
fill_launch(const mr_block_group *b, const mr_task_operand *in,
            const mr_task_operand *out, mr_block_launch *l)
{
    l->n_kept = b->n_kept;
    l->n_red = b->n_red;
    memcpy(l->dim, b->dim, (size_t)(b->n_kept + b->n_red) * sizeof *l->dim);
    for (int i = 0; i < b->code.n_in; i++)
        fill_input(b, i, &in[i], &l->in[i]);
    for (int i = 0; i < b->code.n_out; i++)
        fill_output(b, &out[i], b->code.out[i].per_row, &l->out[i]);
}

void
mr__block_launch_make(const mr_block_group *b, const mr_task_operand *in,
                      const mr_task_operand *out, mr_block_launch *l)
{
    fill_launch(b, in, out, l);
    mr__block_normalise(&b->code, l);
}

void
mr__block_launch_rows(const mr_block_group *b, const mr_task_operand *in,
                      const mr_task_operand *out, mr_block_launch *l)
{
    fill_launch(b, in, out, l);
    mr__block_merge_rows(&b->code, l);
}

mr_code
mr__run_block(const mr_device_table *device, const mr_block_group *block,
              const mr_task_operand *in, const mr_task_operand *out)
{
    mr_block_launch l;

    mr__block_launch_make(block, in, out, &l);
    return device->run_block(&block->code, &l, NULL);
}

/* ---- plain copies: programs of one instruction, one for each dtype */

static const uint8_t copy_row[2] = {0, 0};
static const mr_inst copy_inst = {.k = MR_K_COPY, .dst = 1};
static const mr_code_out copy_out = {.reg = 1};
#define TWO(t)                                                                 \
    {                                                                          \
        (t), (t)                                                               \
    }
static const uint8_t copy_dtype[MR_N_DTYPES][2] = {
    TWO(0), TWO(1), TWO(2),  TWO(3),  TWO(4),  TWO(5),  TWO(6), TWO(7),
    TWO(8), TWO(9), TWO(10), TWO(11), TWO(12), TWO(13), TWO(14)};
#define COPY_CODE(t)                                                           \
    {                                                                          \
        .n_in = 1, .n_inst = 1, .n_out = 1, .n_reg = 2, .n_phases = 1,         \
        .reg_dtype = copy_dtype[t], .reg_row = copy_row, .inst = &copy_inst,   \
        .out = &copy_out                                                       \
    }
static const mr_block_code copy_code[MR_N_DTYPES] = {
    COPY_CODE(0),  COPY_CODE(1),  COPY_CODE(2),  COPY_CODE(3),  COPY_CODE(4),
    COPY_CODE(5),  COPY_CODE(6),  COPY_CODE(7),  COPY_CODE(8),  COPY_CODE(9),
    COPY_CODE(10), COPY_CODE(11), COPY_CODE(12), COPY_CODE(13), COPY_CODE(14)};

const mr_block_code *
mr__copy_launch(const mr_task_operand *in, const mr_task_operand *out,
                mr_block_launch *l)
{
    const mr_block_code *code = &copy_code[in->dtype];
    int64_t fresh[MR_MAX_NDIM];

    l->n_kept = in->ndim;
    l->n_red = 0;
    memcpy(l->dim, in->dim, (size_t)in->ndim * sizeof *l->dim);
    l->in[0].data = in->data;
    l->out[0].data = out->data;
    mr__strides_fresh(in->ndim, in->dim, fresh);
    for (int d = 0; d < in->ndim; d++) {
        l->in[0].stride[d] = stride_bytes(in, d);
        l->out[0].stride[d] = fresh[d] * mr__dtype_size(in->dtype);
    }
    mr__block_normalise(code, l);
    return code;
}

mr_code
mr__run_copy(const mr_device_table *device, const mr_task_operand *in,
             const mr_task_operand *out)
{
    mr_block_launch l;
    const mr_block_code *code = mr__copy_launch(in, out, &l);

    return device->run_block(code, &l, NULL);
}

static const mr_block_code *
fill_task(const mr_task *t, mr_block_launch *l)
{
    if (t->block == NULL)
        return mr__copy_launch(&t->in[0], &t->out[0], l);
    mr__block_launch_make(t->block, t->in, t->out, l);
    return &t->block->code;
}

static void *
workspace_of(const mr_task *t)
{
    return t->workspace != NULL ? t->workspace->data : NULL;
}

static mr_code
run_block(const mr_task *t)
{
    mr_block_launch l;
    const mr_block_code *code = fill_task(t, &l);

    return t->device->run_block(code, &l, workspace_of(t));
}

/* Numbers of a launch that may want workspace for their lanes. */
#define SPLIT_LEAST (1 << 16)

size_t
mr__block_task_workspace(const mr_task *t)
{
    mr_block_launch l;
    const mr_block_code *code;
    int64_t points = 1, all = 1;

    for (int i = 0; i < t->block->n_kept + t->block->n_red; i++) {
        all *= t->block->dim[i];
        points *= i < t->block->n_kept ? 1 : t->block->dim[i];
    }
    /* a block of a reduction is split where there are many of them, if at all:
     * most rows end here */
    if (t->device->block_workspace == NULL ||
        (points <= MR_RED_BLOCK && all < SPLIT_LEAST))
        return 0;
    code = fill_task(t, &l);
    return t->device->block_workspace(code, &l);
}

static void
operand_view(mr_kernel_view *v, const mr_task_operand *o)
{
    v->data = o->data;
    v->dtype = o->dtype;
    v->ndim = o->ndim;
    v->size = o->size;
    v->dim = o->dim;
    v->stride = o->stride;
}

void
mr__operand_views(mr_kernel_view *v, int n_in, const mr_task_operand *in,
                  int n_out, const mr_task_operand *out)
{
    for (int i = 0; i < n_in; i++)
        operand_view(&v[i], &in[i]);
    for (int i = 0; i < n_out; i++)
        operand_view(&v[n_in + i], &out[i]);
}

bool
mr__task_args(mr_task *t)
{
    mr_kernel_view *v = mr__arena_alloc(
        &t->window->arena, (size_t)(t->n_in + t->node->n_out + 1) * sizeof *v);

    if (v == NULL)
        return false;
    mr__operand_views(v, t->n_in, t->in, 0, NULL);
    t->args = (mr_kernel_args){.op = t->node->op,
                               .params = t->node->params,
                               .n_in = t->n_in,
                               .in = v,
                               .out = v + t->n_in,
                               .partial = &t->partial};
    mr__task_args_out(t);
    return true;
}

void
mr__task_args_out(mr_task *t)
{
    /* made here: const for kernels alone */
    mr_kernel_view *v = (mr_kernel_view *)(uintptr_t)t->args.out;

    mr__operand_views(v, 0, NULL, t->n_out, t->out);
    t->args.n_out = t->n_out;
}

/* Apart, so that other kernels need no room for a launch. */
__attribute__((noinline)) mr_code
mr__task_run_joined(mr_task *t)
{
    mr_block_launch l;
    mr_epilogue e = {.code = &t->block->code, .launch = &l};
    mr_code rc;

    t->args.workspace = workspace_of(t);
    mr__block_launch_rows(t->block, t->in + t->args.n_in, t->out, &l);
    t->args.epilogue = &e;
    rc = t->kernel->run(&t->args);
    t->args.epilogue = NULL;
    return rc;
}

static mr_code
run_kernel(mr_task *t)
{
    t->args.workspace = workspace_of(t);
    if (t->block != NULL)
        return mr__task_run_joined(t);
    return t->kernel != NULL ? t->kernel->run(&t->args)
                             : t->node->op->exec->run(t->args.plan, &t->args);
}

/* ---- completing
 * ------------------------------------------------------------------ */

static void
drop_references(mr_task *t)
{
    mr_window *w = t->window;

    for (int i = 0; i < t->n_in; i++) {
        if (!t->in[i].borrowed)
            mr__buffer_release(t->in[i].buffer);
        if (__builtin_expect(!t->in[i].lacks, 1))
            mr__release(t->in[i].keep);
        else
            mr__error_release(t->in[i].why);
    }
    for (int i = 0; i < t->n_out; i++)
        mr__buffer_release(t->out[i].buffer);
    mr__buffer_release(t->workspace);
    for (int i = 0; i < t->n_done; i++)
        mr__release(t->done[i]);
    mr__release(t->node);
    mr__window_release(w);
}

static void
complete_node(const mr_task *t, mr_array *x)
{
    unsigned how = MR_DONE | (t->gives ? MR_STATE_GIVEN : 0);

    mr__wait_wake(mr__wait_finish(x, (mr_state)how));
    if (x->trace == 0 || !mr__trace_live(x->trace))
        mr__node_detach(x);
}

static void
complete(mr_task *t)
{
    for (int i = 0; i < t->n_done; i++)
        complete_node(t, t->done[i]);
}

/* The data's error sticks. */
static void
fail_node(mr_array *x, mr_error_record *why)
{
    x->error = mr__error_retain(why);
    mr__wait_wake(mr__wait_finish(x, MR_FAILED));
}

static void
fail(mr_task *t, mr_error_record *why)
{
    for (int i = 0; i < t->n_done; i++)
        fail_node(t->done[i], why);
}

/* The output in whose memory x lies: each has a buffer of its own, which x has
 * if it is the output or a view of it. */
static int
output_of(const mr_task *t, const mr_array *x)
{
    int k = 0;

    while (k < t->n_out && t->out[k].buffer != x->buffer)
        k++;
    assert(k < t->n_out);
    return k;
}

/* Some outputs are there: a tuple is done, and says itself which are not. */
static __attribute__((cold)) void
complete_some(mr_task *t, mr_error_record *why)
{
    for (int i = 0; i < t->n_done; i++) {
        mr_array *x = t->done[i];
        mr_error_record *part;

        if (x->flags & MR_NODE_TUPLE) {
            x->error = mr__error_retain(why);
            complete_node(t, x);
            continue;
        }
        part = mr__error_part(why, output_of(t, x));
        if (part == NULL)
            complete_node(t, x);
        else
            fail_node(x, part);
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

/* Does x still have the memory that was planned for?  After a retraction
 * another plan may have computed it elsewhere.  The operand's reference keeps
 * the address from being used again.  *k: of a tuple the result that it is. */
static bool
is_same_memory(const mr_array *x, const mr_buffer *b, int *k)
{
    *k = 0;
    if (!(x->flags & MR_NODE_TUPLE))
        return x->buffer == b;
    for (; *k < x->n_out; ++*k)
        if (x->tuple[*k].buffer == b)
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

static inline mr_error_record *
why_of_input(const mr_task *t, int i)
{
    const mr_array *x = t->in[i].keep;
    int k;

    if (__builtin_expect(t->in[i].lacks, 0))
        return mr__error_retain(t->in[i].why);
    if (!t->in[i].is_source)
        return NULL;
    switch (mr__state(x)) {
    case MR_DONE:
        if (!is_same_memory(x, t->in[i].buffer, &k))
            return reason_given_up(x);
        /* of one that is done: a tuple that lacks results */
        return __builtin_expect(x->error == NULL, 1)
                   ? NULL
                   : mr__error_retain(mr__error_part(x->error, k));
    case MR_FAILED:
        return mr__error_retain(x->error);
    case MR_NEW:
    case MR_SUBMITTED:
    default:
        return reason_given_up(x);
    }
}

mr_error_record *
mr__task_why_of_input(const mr_task *t, int i)
{
    return why_of_input(t, i);
}

/* The first operand that is not there, or n_in, and why. */
static inline int
first_lacking(const mr_task *t, mr_error_record **why)
{
    *why = NULL;
    for (int i = 0; i < t->n_in; i++)
        if ((*why = why_of_input(t, i)) != NULL)
            return i;
    return t->n_in;
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
    case MR_TASK_TRANSFER: /* always launched */
    default:
        return MR_OK;
    }
}

static mr_copy_way
way_of(const mr_task *t)
{
    if (t->in[0].buffer->space == 0)
        return MR_COPY_TO_DEVICE;
    return t->out[0].buffer->space == 0 ? MR_COPY_FROM_DEVICE : MR_COPY_PEER;
}

/* Into the queue. */
static __attribute__((cold)) mr_code
put_once(mr_task *t, void *queue)
{
    const mr_device_table *d = t->device;
    mr_launch l = {0};
    mr_block_launch block;

    switch (t->kind) {
    case MR_TASK_BLOCK:
        l.code = fill_task(t, &block);
        l.block = &block;
        l.workspace = workspace_of(t);
        return d->launch(d->self, queue, &l);
    case MR_TASK_KERNEL:
        t->args.workspace = workspace_of(t);
        if (t->kernel == NULL)
            return t->node->op->exec->launch(t->args.plan, &t->args, queue,
                                             t->flight->memory);
        l.kernel = t->kernel;
        l.args = &t->args;
        return d->launch(d->self, queue, &l);
    case MR_TASK_TRANSFER:
        return d->copy(d->self, queue, way_of(t), t->out[0].data, t->in[0].data,
                       (size_t)t->in[0].size,
                       mr__device_of_space(t->in[0].buffer->space));
    case MR_TASK_ALIAS:
    default:
        return MR_OK;
    }
}

void
mr__task_blame(const mr_array *x)
{
    mr__error_annotate(mr__op_label(x->op), x->site, "while computing %s",
                       mr__op_label(x->op));
}

static mr_error_record *
capture_with_operator(const mr_task *t)
{
    mr__task_blame(t->node);
    return mr__work_capture(t->device);
}

/* In the checking mode. */
static __attribute__((cold)) mr_code
check(const mr_task *t)
{
    if (t->kind != MR_TASK_BLOCK &&
        (t->kind != MR_TASK_KERNEL || t->kernel == NULL))
        return MR_OK; /* a compiled program looks at its steps itself */
    return mr__check_outputs(t->node, t->block != NULL ? &t->block->code : NULL,
                             t->n_in, t->in, t->n_out, t->out);
}

/* Kernels take their little scratch before they write, so one that had no
 * memory for it can run again: when nothing else can give some back.  An
 * operator that runs itself sees to that. */
mr_error_record *
mr__task_run_here(mr_task *t)
{
    mr_code rc = run_once(t);

    if (rc == MR_E_MEMORY && t->args.plan == NULL) {
        mr_error_take();
        mr__pool_trim(t->device->pool(t->device->self), 0);
        rc = run_once(t);
    }
    if (__builtin_expect(rc != MR_OK, 0))
        return t->block != NULL ? mr__task_block_failed(t, rc)
                                : capture_with_operator(t);
    if (mr__checking() && check(t) != MR_OK)
        return capture_with_operator(t);
    return t->partial.out;
}

/* A task that flew has run already. */
static mr_error_record *
outcome(mr_task *t)
{
    mr_error_record *why;
    int first = first_lacking(t, &why);

    if (__builtin_expect(t->flight != NULL, 0))
        return mr__task_landed(t, first, why);
    return __builtin_expect(why == NULL, 1)
               ? mr__task_run_here(t)
               : mr__task_run_without(t, first, why);
}

void
mr__task_run(mr_task *t)
{
    mr_error_record *why = outcome(t);

    if (__builtin_expect(why == NULL, 1))
        complete(t);
    else if (mr__error_has_parts(why))
        complete_some(t, why);
    else if (mr__error_is_transient(mr__error_record_code(why)) &&
             !t->destructive)
        retract(t, why);
    else
        fail(t, why);
    if (why != NULL && t->feeds != NULL) {
        assert(t->feeds->in[t->feeds_in].keep == NULL);
        t->feeds->in[t->feeds_in].why = mr__error_retain(why);
        t->feeds->in[t->feeds_in].lacks = true;
    }
    mr__error_release(why);
    if (t->flight != NULL) {
        mr__error_release(t->flight->why);
        mr__stream_landed(t);
    }
    drop_references(t);
    mr__wait_ring();
}

/* ---- launching and landing
 * --------------------------------------------------------- */

/* On a thread of the provider's, or the drainer's when there is no queue. */
static __attribute__((cold)) void
landed(mr_event *e, mr_code rc)
{
    mr_flight *f = (mr_flight *)e;

    mr__defer_user_code_begin();
    if (rc != MR_OK && f->why == NULL)
        f->why = capture_with_operator(f->task);
    else if (rc != MR_OK)
        mr_error_take();
    mr__task_run(f->task); /* what is left of it */
    mr__stats_on_worker();
    /* last: whoever this wakes looks at what the stream has done */
    mr__tasks_left();
    mr__defer_user_code_end();
}

static mr_code
open_queue(const mr_device_table *d, void **queue)
{
    if (mr__device_is_lost(d))
        return mr__fail(MR_E_DEVICE,
                        "the device %s was opened before this process was "
                        "forked: start processes that use it afresh",
                        d->name);
    if (*queue == NULL)
        *queue = d->queue_new(d->self);
    return *queue != NULL ? MR_OK : mr__error_code();
}

static mr_error_record *
put(mr_task *t, void *queue)
{
    mr_code rc = put_once(t, queue);

    /* what an operator of its own has put there refers to its memory */
    if (rc == MR_E_MEMORY && t->args.plan == NULL) {
        mr_error_take();
        mr__pool_trim(t->device->pool(t->device->self), 0);
        rc = put_once(t, queue);
    }
    return rc == MR_OK ? NULL : capture_with_operator(t);
}

void
mr__task_launch(mr_task *t, const mr_device_table *device, void **queue)
{
    mr_flight *f = t->flight;
    mr_code rc = open_queue(device, queue);

    f->event.done = landed;
    if (rc == MR_OK) {
        f->why = put(t, *queue);
        device->record(device->self, *queue, &f->event);
    } else { /* no queue: nothing of this stream is under way */
        landed(&f->event, rc);
    }
}

void
mr__tasks_fork_child(void)
{
    mr__lock_fork_child(&work.lock);
    work.cond = (mr_cond)MR_COND_INIT;
    /* relaxed: no other thread lives */
    atomic_store_explicit(&work.sleepers, 0, memory_order_relaxed);
}
