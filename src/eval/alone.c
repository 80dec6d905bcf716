/* SPDX-License-Identifier: Apache-2.0
 *
 * alone.c -- a warm compiled call, evaluated without the plan lock.
 *
 * Threads that call one function and evaluate each result would queue for the
 * plan lock, and pass its line and those of the counters under it back and
 * forth, for work that touches nothing of each other's.  So when the roots are
 * all that can see the call (its tuple has no other references), and its
 * arguments are there, the thread takes the roots and runs the program; nobody
 * reaches the tuple but through them.  Memory is the thread's, the stream is
 * its own and empty, and is busy meanwhile, so that forks wait and later work
 * comes after.  Whatever is out of the ordinary gives the roots back, as they
 * were, and is planned.
 *
 * Called by: eval.c, under no lock.
 */
#include "eval/alone.h"

#include "base/error.h"
#include "eval/check.h"
#include "eval/device.h"
#include "eval/line.h"
#include "eval/registry.h"
#include "eval/stream.h"
#include "eval/wait.h"
#include "graph/op.h"
#include "marram/error.h"

enum { ROOTS_MAX = 8, VIEWS_MAX = 32, WORKSPACE_MAX = 64 * 1024 };
/* Work above this many nanoseconds is planned: it gives the host's lock up. */
#define COST_MAX 20000.0

typedef struct alone {
    mr_array *const *root;
    int n;           /* of them that are taken */
    mr_array *tuple; /* the call, which only the roots can reach */
    mr_buffer *out[ROOTS_MAX], *workspace;
    mr_kernel_view view[VIEWS_MAX]; /* arguments, then results */
    mr_kernel_args args;
    mr_partial partial;
} alone;

/* ---- taking and giving back ------------------------------------------------
 */

static bool
take(mr_array *x)
{
    uint8_t fresh = MR_NEW;

    /* acq_rel: pairs with the exchange by which another gave it back; fails
     * when it was forbidden */
    return (x->flags & MR_NODE_ALONE) && x->trace == 0 &&
           atomic_compare_exchange_strong_explicit(
               &x->state, &fresh, MR_SUBMITTED | MR_STATE_ALONE,
               memory_order_acq_rel, memory_order_relaxed);
}

mr_state
mr__alone_forbidden(mr_array *x)
{
    uint8_t seen = MR_NEW;

    /* acq_rel: pairs with `take`; one of the two sees the other.  acquire: with
     * who filled it.  What was seen counts: in the next moment it may be given
     * back, unmarked. */
    (void)atomic_compare_exchange_strong_explicit(
        &x->state, &seen, MR_NEW | MR_STATE_PLANNED, memory_order_acq_rel,
        memory_order_acquire);
    return (mr_state)(seen & MR_STATE_MASK);
}

static void
give_back(alone *a)
{
    while (a->n > 0)
        mr__wait_wake(mr__wait_finish(a->root[--a->n], MR_NEW));
    mr__wait_ring();
}

/* All roots, of one call and of no stream that was asked for.  An error is of
 * an attempt before: its readers hold the plan lock. */
static bool
take_all(alone *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mr_array *x = a->root[i];

        if (!take(x))
            return false;
        a->n++;
        if (x->stream != 0 || x->error != NULL || x->in[0] != a->root[0]->in[0])
            return false;
    }
    a->tuple = a->root[0]->in[0];
    /* The references left are the roots' edges.  A result asked for before has
     * computed it. */
    return mr__refs_are(a->tuple, n) && mr__state(a->tuple) == MR_NEW &&
           a->tuple->error == NULL;
}

/* ---- arguments and memory ------------------------------------------------
 */

/* False: it is not there. */
static bool
argument_view(const mr_array *x, mr_kernel_view *v)
{
    if (mr__state(x) != MR_DONE)
        return false;
    v->dtype = (mr_dtype)x->dtype;
    v->ndim = x->ndim;
    v->size = x->size;
    v->dim = x->dim;
    v->stride = x->dim + x->ndim;
    if (x->flags & MR_NODE_SCALAR_CONST) {
        /* read only by contract */
        v->data = (void *)(uintptr_t)mr__scalar_const(x);
        return true;
    }
    if (x->buffer == NULL || x->buffer->space != 0)
        return false;
    v->data = (char *)x->buffer->data + x->offset * mr__dtype_size(v->dtype);
    return true;
}

/* The tuple is ours: its results' strides are written here. */
static bool
result_view(mr_tuple_out *o, mr_kernel_view *v, mr_buffer **memory)
{
    const mr_device_table *host = mr__device_host();
    int64_t *stride = o->dim + o->ndim;

    if (o->size == 0)
        return false;
    *memory =
        mr__buffer_new(host->pool(host->self),
                       (size_t)o->size * (size_t)mr__dtype_size(o->dtype));
    if (*memory == NULL)
        return false;
    mr__strides_fresh(o->ndim, o->dim, stride);
    *v = (mr_kernel_view){.data = (*memory)->data,
                          .dtype = o->dtype,
                          .ndim = o->ndim,
                          .size = o->size,
                          .dim = o->dim,
                          .stride = stride};
    return true;
}

static bool
workspace(alone *a, size_t bytes)
{
    const mr_device_table *host = mr__device_host();

    if (bytes == 0)
        return true;
    if (bytes > WORKSPACE_MAX)
        return false;
    a->workspace = mr__buffer_new(host->pool(host->self), bytes);
    if (a->workspace == NULL)
        return false;
    a->args.workspace = a->workspace->data;
    return true;
}

static bool
memory(alone *a, const mr_op_exec *e)
{
    bool ok = true;

    mr__pool_waits = true; /* a limit is the planner's to exceed */
    for (int k = 0; ok && k < a->tuple->n_out; k++)
        ok = result_view(&a->tuple->tuple[k], &a->view[a->args.n_in + k],
                         &a->out[k]);
    ok = ok && workspace(a, e->workspace(a->args.plan));
    mr__pool_waits = false;
    if (!ok && mr__error_code() == MR_E_MEMORY)
        mr_error_take();
    return ok;
}

/* What the program needs to run, all of it at hand. */
static bool
prepare(alone *a)
{
    const mr_array *t = a->tuple;
    const mr_op_exec *e = t->op->exec;

    if (t->n_in + t->n_out > VIEWS_MAX || t->n_out > ROOTS_MAX ||
        t->stream != 0 || e->plan_kept == NULL ||
        e->device(t) != mr__device_host())
        return false;
    for (int i = 0; i < t->n_in; i++)
        if (!argument_view(t->in[i], &a->view[i]))
            return false;
    a->args = (mr_kernel_args){.op = t->op,
                               .params = t->params,
                               .n_in = t->n_in,
                               .n_out = t->n_out,
                               .in = a->view,
                               .out = a->view + t->n_in,
                               .partial = &a->partial};
    a->args.plan = e->plan_kept(t, &a->args);
    return a->args.plan != NULL && e->cost(a->args.plan) <= COST_MAX &&
           memory(a, e);
}

static void
drop_memory(alone *a)
{
    for (int k = 0; k < ROOTS_MAX && a->out[k] != NULL; k++)
        mr__buffer_release(a->out[k]);
    mr__buffer_release(a->workspace);
}

/* ---- running ------------------------------------------------------------- */

static int
result_index(const mr_array *x)
{
    return (int)((const mr_output_params *)mr__params(x))->index;
}

static void
settle(mr_array *x, mr_buffer *b)
{
    mr__strides_fresh(x->ndim, x->dim, x->dim + x->ndim);
    x->buffer = mr__buffer_retain(b);
}

/* As a task completes: the results' memory, their states, who waits, then what
 * they were made from. */
static void
complete(alone *a)
{
    for (int i = 0; i < a->n; i++)
        settle(a->root[i], a->out[result_index(a->root[i])]);
    for (int i = 0; i < a->n; i++) {
        mr__wait_wake(mr__wait_finish(a->root[i], MR_DONE));
        mr__node_detach(a->root[i]);
    }
    mr__wait_ring();
}

/* One that failed has no memory, but strides as it would have them. */
static void
fail_root(mr_array *x, mr_error_record *why)
{
    mr__strides_fresh(x->ndim, x->dim, x->dim + x->ndim);
    x->error = mr__error_retain(why);
    mr__wait_wake(mr__wait_finish(x, MR_FAILED));
}

/* The data's error sticks to those that depend on it. */
static __attribute__((cold)) void
complete_some(alone *a, mr_error_record *why)
{
    mr_error_record *part[ROOTS_MAX];

    for (int i = 0; i < a->n; i++) {
        int k = result_index(a->root[i]);

        part[i] = mr__error_part(why, k);
        if (part[i] == NULL)
            settle(a->root[i], a->out[k]);
    }
    for (int i = 0; i < a->n; i++) {
        if (part[i] != NULL) {
            fail_root(a->root[i], part[i]);
            continue;
        }
        mr__wait_wake(mr__wait_finish(a->root[i], MR_DONE));
        mr__node_detach(a->root[i]);
    }
    mr__wait_ring();
    mr__error_release(why);
}

/* Errors say nothing of the data here: all is left as it was. */
static bool
run(alone *a)
{
    if (a->tuple->op->exec->run(a->args.plan, &a->args) != MR_OK) {
        mr_error_take();
        return false;
    }
    if (__builtin_expect(a->partial.out == NULL, 1))
        complete(a);
    else
        complete_some(a, a->partial.out);
    return true;
}

bool
mr__eval_alone(mr_array *const *root, size_t n)
{
    alone a;
    uint32_t stream;
    bool done;

    if (n > ROOTS_MAX || mr__checking() || !mr__line_is_empty() ||
        mr__stream_wish(mr__ctx.stream) != 0)
        return false;
    stream = mr__stream_own();
    if (!mr__stream_occupy(stream))
        return false;
    a.root = root;
    a.n = 0;
    a.workspace = NULL;
    a.partial = (mr_partial){NULL, NULL};
    for (int k = 0; k < ROOTS_MAX; k++)
        a.out[k] = NULL;
    mr__defer_user_code_begin();
    done = take_all(&a, n) && prepare(&a) && run(&a);
    if (!done)
        give_back(&a);
    drop_memory(&a);
    mr__stream_vacate(stream, done);
    mr__defer_user_code_end();
    return done;
}
