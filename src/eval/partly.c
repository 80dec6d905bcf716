/* SPDX-License-Identifier: Apache-2.0
 *
 * partly.c -- tasks of which some inputs are not there, or some results.
 *
 * A producer failed because of its data, or a gather inside a block met an
 * index out of range: what depends on that fails for the same reason, the
 * task's other results are computed.  A reason that says nothing of the data
 * takes the whole task back, as always: it is planned again.
 *
 * A task that flew has read whatever lay where an input was to be, so what it
 * found there is nothing, and what does not depend on it is right.
 *
 * Called by: task.c, under no lock.  Calls: parts.c.
 */
#include "eval/partly.h"

#include "base/alloc.h"
#include "base/error.h"
#include "eval/parts.h"
#include "marram/error.h"

static mr_error_record *
captured(const mr_task *t)
{
    mr__task_blame(t->node);
    return mr__work_capture(t->device);
}

static void
work_blames(const mr_work *w, const mr_array *x)
{
    (void)w;
    mr__task_blame(x);
}

/* A task as work, with its arguments to change. */
typedef struct task_work {
    mr_work w; /* first */
    mr_task *task;
} task_work;

/* The operands are the task's own: those that are blank by now are so. */
static mr_code
work_runs_joined(const mr_work *w)
{
    return mr__task_run_joined(((const task_work *)w)->task);
}

static void
work_of_task(task_work *p, mr_task *t, mr_error_record **in,
             mr_error_record **out)
{
    bool kernel = t->kind == MR_TASK_KERNEL;

    for (int k = 0; k < t->n_out; k++)
        out[k] = NULL;
    p->task = t;
    p->w = (mr_work){.device = t->device,
                     .node = t->node,
                     .kernel = kernel ? t->kernel : NULL,
                     .block = t->block,
                     .n_kernel_in = kernel ? t->args.n_in : 0,
                     .n_in = t->n_in,
                     .n_out = t->n_out,
                     .in = t->in,
                     .out = t->out,
                     .in_why = in,
                     .out_why = out,
                     .blame = work_blames,
                     .run_joined = work_runs_joined};
}

/* What is known of the outputs as one record, or NULL: all are there. */
static mr_error_record *
outcome_of_work(mr_work *w, mr_code rc)
{
    mr_error_record *why = NULL;
    bool any = false;

    for (int k = 0; k < w->n_out; k++)
        any = any || w->out_why[k] != NULL;
    if (rc == MR_OK && any) {
        why = mr__work_parts(w->device, w->n_out, w->out_why);
        rc = why == NULL ? MR_E_MEMORY : MR_OK;
    }
    mr__work_end(w);
    if (rc == MR_OK)
        return why;
    w->blame(w, w->node);
    return mr__work_capture(w->device);
}

/* Blocks have so many operands, and kernels in front of them a few more; what
 * has several results and more operands runs itself. */
enum { WORK_IN_MAX = MR_CODE_MAX_IO + 8 };

mr_error_record *
mr__task_block_failed(mr_task *t, mr_code rc)
{
    mr_error_record *in[WORK_IN_MAX] = {NULL}, *out[MR_CODE_MAX_IO];
    task_work p;

    if (t->n_in > WORK_IN_MAX)
        return captured(t);
    work_of_task(&p, t, in, out);
    return outcome_of_work(&p.w, mr__work_failed(&p.w, rc));
}

static bool
runs_itself(const mr_task *t)
{
    return t->kind == MR_TASK_KERNEL && t->kernel == NULL;
}

/* May it have results that do not depend on all of its inputs?  What runs
 * itself need not read one, even for its only result. */
static bool
depends_in_parts(const mr_task *t)
{
    if (runs_itself(t))
        return t->node->op->exec->does_without;
    return t->n_out > 1 && t->block != NULL && t->n_in <= WORK_IN_MAX;
}

/* Why the operands are not there, from `first` on, whose reason is here
 * already; NULL: nothing to be tried again is among them, else that. */
static mr_error_record *
reasons(const mr_task *t, int first, mr_error_record **in)
{
    mr_error_record *again = NULL;

    for (int i = 0; i < t->n_in; i++) {
        if (i != first)
            in[i] = i < first ? NULL : mr__task_why_of_input(t, i);
        if (again == NULL && in[i] != NULL &&
            mr__error_is_transient(mr__error_record_code(in[i])))
            again = mr__error_retain(in[i]);
    }
    return again;
}

/* A device's own failure: no results are there, whatever inputs lack. */
static bool
device_failed(const mr_task *t)
{
    return t->flight != NULL && t->flight->why != NULL &&
           mr__error_is_transient(mr__error_record_code(t->flight->why));
}

static mr_error_record *
block_without(mr_task *t, mr_error_record **in)
{
    mr_error_record *out[MR_CODE_MAX_IO];
    mr_code rc = MR_OK;
    task_work p;

    work_of_task(&p, t, in, out);
    if (t->flight == NULL)
        rc = mr__work_run(&p.w);
    else if (mr__work_spread(&p.w) && device_failed(t)) {
        mr__work_end(&p.w);
        return mr__error_retain(t->flight->why);
    }
    return outcome_of_work(&p.w, rc);
}

/* All that it put into the queue has run: a failure that none of it is known to
 * have had is everybody's. */
static mr_error_record *
own_landed(mr_task *t)
{
    mr_error_record *out;
    mr_code rc =
        t->node->op->exec->landed(t->args.plan, &t->args, t->flight->memory);

    out = t->partial.out;
    t->partial.out = NULL;
    if (t->flight->why == NULL)
        return rc == MR_OK ? out : captured(t);
    if (rc != MR_OK)
        mr_error_take();
    mr__error_release(out);
    return mr__error_retain(t->flight->why);
}

/* What such an operator kept for its landing goes. */
static void
forget_landing(mr_task *t)
{
    if (t->flight != NULL && runs_itself(t))
        mr__error_release(own_landed(t));
}

/* An operator that runs itself does without, or has run. */
static mr_error_record *
own_without(mr_task *t, mr_error_record **in)
{
    mr_error_record *why, *first = NULL;

    t->partial.in = in;
    why = t->flight == NULL ? mr__task_run_here(t) : own_landed(t);
    t->partial.in = NULL;
    for (int i = t->n_in; i-- > 0;)
        first = in[i] != NULL ? in[i] : first;
    /* found in what was not there, perhaps */
    if (t->flight != NULL && t->flight->why != NULL && !device_failed(t)) {
        mr__error_release(why);
        why = mr__error_retain(first);
    }
    for (int i = 0; i < t->n_in; i++)
        mr__error_release(in[i]);
    return why;
}

/* Takes why. */
static mr_error_record *
do_without(mr_task *t, int first, mr_error_record *why)
{
    mr_error_record *few[WORK_IN_MAX], **in = few, *again;

    if (t->n_in > WORK_IN_MAX) {
        in = mr__work_alloc(t->device, (size_t)t->n_in * sizeof *in);
        if (in == NULL) {
            mr__error_release(why);
            why = captured(t);
            forget_landing(t);
            return why;
        }
    }
    in[first] = why;
    again = reasons(t, first, in);
    if (again != NULL) {
        for (int i = 0; i < t->n_in; i++)
            mr__error_release(in[i]);
        forget_landing(t);
        why = again;
    } else {
        why = t->block != NULL ? block_without(t, in) : own_without(t, in);
    }
    if (in != few)
        mr__dealloc(in);
    return why;
}

mr_error_record *
mr__task_run_without(mr_task *t, int first, mr_error_record *why)
{
    return depends_in_parts(t) &&
                   !mr__error_is_transient(mr__error_record_code(why))
               ? do_without(t, first, why)
               : why;
}

/* What it found in bad inputs is nothing. */
mr_error_record *
mr__task_landed(mr_task *t, int first, mr_error_record *why)
{
    if (why == NULL)
        return runs_itself(t) ? own_landed(t)
                              : mr__error_retain(t->flight->why);
    if (depends_in_parts(t) &&
        !mr__error_is_transient(mr__error_record_code(why)))
        return do_without(t, first, why);
    forget_landing(t);
    return why;
}
