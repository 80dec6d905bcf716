/* SPDX-License-Identifier: Apache-2.0
 *
 * partly.c -- a call of which the data lets some results be computed, and some
 * not.
 *
 * Steps that depend on nothing that failed run as always; of a block some
 * results may be there (eval/parts.h); steps that read what is not there are
 * left out, and their values are not there either.  Memory is shared by the
 * order of the steps, so leaving one out spoils nobody's: what it would have
 * written is read by nobody, and what lay there is read by nobody any more.
 * Nor does it matter that an argument which was given up is not written over.
 *
 * Why a value is not there stands with its number (place.h): the numbers are
 * those from before memory was shared, and each is written by one step.
 *
 * On a device with queues all steps run, over whatever is there.  Which of them
 * failed is asked by events, and what depends on them is found out at the end.
 *
 * Called by: run.c, when a step or an argument has failed, under no lock.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compile/steps.h"
#include "compile/tier1.h"
#include "eval/check.h"
#include "eval/parts.h"

typedef struct partly {
    const mr_program *p;
    const mr_kernel_args *a;
    mr_error_record **value; /* by number: why it is not there, retained */
    mr_error_record **why;   /* of a step's operands: room for the most */
} partly;

/* A step as work. */
typedef struct step_work {
    mr_work w; /* first */
    const partly *q;
    const mr_step *step;
    mr_step_operands operands;
} step_work;

/* ---- values ----------------------------------------------------------------
 */

static bool
partly_begin(partly *q, const mr_program *p, const mr_kernel_args *a)
{
    size_t most = 0, n;

    for (int i = 0; i < p->n_steps; i++) {
        n = (size_t)(p->steps[i].n_in + p->steps[i].n_out);
        most = n > most ? n : most;
    }
    n = (size_t)p->n_values + (size_t)p->n_out;
    q->p = p;
    q->a = a;
    q->value =
        mr__work_alloc(p->device, (n + most + 1) * sizeof(mr_error_record *));
    q->why = q->value == NULL ? NULL : q->value + n;
    return q->value != NULL;
}

static void
partly_end(partly *q)
{
    for (int32_t v = 0; v < q->p->n_values; v++)
        mr__error_release(q->value[v]);
    mr__dealloc(q->value);
}

/* Borrowed. */
static mr_error_record *
why_of_slot(const partly *q, const mr_slot *s)
{
    mr_error_record *const *in = q->a->partial->in;

    if (s->value >= 0)
        return q->value[s->value];
    if (s->kind == MR_SLOT_CONST) /* NULL but of one that failed */
        return q->p->consts[s->index]->error;
    /* the holder stands in front */
    return s->kind == MR_SLOT_ARG && in != NULL ? in[s->index + 1] : NULL;
}

static bool
inputs_are_there(const partly *q, const mr_step *s)
{
    for (int i = 0; i < s->n_in; i++)
        if (why_of_slot(q, &s->in[i]) != NULL)
            return false;
    return true;
}

/* ---- steps -----------------------------------------------------------------
 */

/* As for a call of which all fails: run.c and eval/ name the operator. */
static void
step_blames(const mr_work *w, const mr_array *x)
{
    const char *call = mr__op_label(&mr__op_compiled);

    (void)w;
    mr__error_annotate(mr__op_label(x->op), x->site,
                       "inside a compiled function");
    mr__error_annotate(NULL, NULL, "while computing %s", call);
}

static mr_code
step_runs_joined(const mr_work *w)
{
    const step_work *f = (const step_work *)w;

    return mr__step_run_joined(f->q->a, f->step, w->in, w->out);
}

static bool
work_begin(step_work *f, const partly *q, const mr_step *s)
{
    if (!mr__step_operands(&f->operands, q->p, q->a, s))
        return false;
    f->q = q;
    f->step = s;
    f->w = (mr_work){.device = q->p->device,
                     .node = s->node,
                     .kernel = s->kernel,
                     .block = s->block,
                     .n_kernel_in =
                         s->kernel == NULL ? 0 : mr__step_kernel_inputs(s),
                     .n_in = s->n_in,
                     .n_out = s->n_out,
                     .in = f->operands.o,
                     .out = f->operands.o + s->n_in,
                     .in_why = q->why,
                     .out_why = q->why + s->n_in,
                     .blame = step_blames,
                     .run_joined = step_runs_joined};
    for (int i = 0; i < s->n_in; i++)
        q->why[i] = mr__error_retain(why_of_slot(q, &s->in[i]));
    for (int k = 0; k < s->n_out; k++)
        f->w.out_why[k] = NULL;
    return true;
}

/* What became of the outputs stays with their values. */
static void
work_finish(step_work *f)
{
    const mr_step *s = f->step;

    for (int k = 0; k < s->n_out; k++) {
        mr_error_record **at = &f->q->value[s->out[k].value];

        if (*at == NULL)
            *at = mr__error_retain(f->w.out_why[k]);
    }
    mr__work_end(&f->w);
    mr__step_operands_end(&f->operands);
}

/* In the checking mode a finding is of the output that shows it. */
static mr_code
check_outputs(step_work *f)
{
    const mr_step *s = f->step;
    mr_work *w = &f->w;
    mr_code rc = MR_OK;

    for (int k = 0; k < w->n_out && !mr__error_is_transient(rc); k++) {
        rc = mr__check_outputs(s->node, &s->block->code, w->n_in, w->in, 1,
                               &w->out[k]);
        if (rc == MR_OK || mr__error_is_transient(rc))
            continue;
        w->blame(w, s->node);
        w->out_why[k] = mr__work_capture(w->device);
        if (mr__error_is_transient(mr__error_record_code(w->out_why[k])))
            rc = mr__fail(MR_E_MEMORY, "no memory to keep an error");
    }
    return mr__error_is_transient(rc) ? rc : MR_OK;
}

/* It failed with rc, its inputs at hand. */
static mr_code
step_failed(const partly *q, const mr_step *s, mr_code rc)
{
    step_work f;

    if (mr__error_is_transient(rc))
        return rc;
    if (!work_begin(&f, q, s))
        return MR_E_MEMORY;
    if (rc == MR_E_VALUE && mr__checking() && s->block != NULL)
        rc = check_outputs(&f);
    else
        rc = mr__work_failed(&f.w, rc);
    work_finish(&f);
    return rc;
}

/* Some of its inputs are not there. */
static mr_code
step_without(const partly *q, const mr_step *s)
{
    step_work f;
    mr_code rc;

    if (!work_begin(&f, q, s))
        return MR_E_MEMORY;
    rc = mr__work_run(&f.w);
    work_finish(&f);
    return rc;
}

static mr_code
step_do(const partly *q, const mr_step *s)
{
    mr_code rc;

    if (!inputs_are_there(q, s))
        return step_without(q, s);
    rc = mr__step_run(q->p, q->a, s);
    return rc == MR_OK ? MR_OK : step_failed(q, s, rc);
}

/* ---- a call ---------------------------------------------------------------
 */

/* What is known now, for a->partial; false: no memory. */
static bool
say(partly *q)
{
    const mr_program *p = q->p;
    mr_error_record **out = q->value + p->n_values;
    bool any = false;

    for (int k = 0; k < p->n_out; k++) {
        out[k] = p->outs[k].value < 0 ? NULL : q->value[p->outs[k].value];
        any = any || out[k] != NULL;
    }
    if (any)
        q->a->partial->out = mr__work_parts(p->device, p->n_out, out);
    return !any || q->a->partial->out != NULL;
}

/* From step `at` on, which failed with rc or has not run (MR_OK); *at is where
 * it ended. */
static mr_code
run_on(partly *q, int *at, mr_code rc)
{
    const mr_program *p = q->p;

    if (rc != MR_OK) {
        rc = step_failed(q, &p->steps[*at], rc);
        *at += rc == MR_OK;
    }
    while (rc == MR_OK && *at < p->n_steps) {
        rc = step_do(q, &p->steps[*at]);
        *at += rc == MR_OK;
    }
    return rc == MR_OK && !say(q) ? MR_E_MEMORY : rc;
}

mr_code
mr__program_go_on(const mr_program *p, const mr_kernel_args *a, int at,
                  mr_code rc)
{
    partly q;

    if (!mr__error_is_transient(rc)) {
        bool ok = partly_begin(&q, p, a);

        rc = ok ? run_on(&q, &at, rc) : MR_E_MEMORY;
        if (ok)
            partly_end(&q);
    }
    if (rc == MR_OK)
        mr__tier1_ran(p);
    else if (at < p->n_steps)
        mr__error_annotate(mr__op_label(p->steps[at].node->op),
                           p->steps[at].node->site,
                           "inside a compiled function");
    return rc;
}

/* ---- on a device with queues
 * ---------------------------------------------------------------- */

/* The reason that one of the events brought which says nothing of the data, or
 * not of which step it is: that of all results; or NULL. */
static mr_error_record *
reason_of_all(const mr_program *p, void *memory)
{
    char *at = memory;

    for (int i = 0; i < p->n_steps; i++) {
        const mr_step_watch *w = mr__step_watch(p, &p->steps[i], at);

        at += mr__step_launch_bytes(p, &p->steps[i]);
        if (w != NULL && w->before.why != NULL)
            return w->before.why;
        if (w != NULL && w->at.why != NULL &&
            mr__error_is_transient(mr__error_record_code(w->at.why)))
            return w->at.why;
    }
    return NULL;
}

static void
drop_reasons(const mr_program *p, void *memory)
{
    char *at = memory;

    for (int i = 0; i < p->n_steps; i++) {
        mr_step_watch *w = mr__step_watch(p, &p->steps[i], at);

        at += mr__step_launch_bytes(p, &p->steps[i]);
        if (w == NULL)
            continue;
        mr__error_release(w->before.why);
        mr__error_release(w->at.why);
        w->before.why = w->at.why = NULL;
    }
}

static mr_code
step_ran(const partly *q, const mr_step *s, mr_error_record *why)
{
    bool there = inputs_are_there(q, s);
    step_work f;
    mr_code rc = MR_OK;

    if (there && why == NULL)
        return MR_OK;
    if (!work_begin(&f, q, s))
        return MR_E_MEMORY;
    if (there) {
        mr__error_raise(why);
        rc = mr__work_failed(&f.w, mr__error_record_code(why));
    } else {
        mr__work_spread(&f.w);
    }
    work_finish(&f);
    return rc;
}

static mr_code
all_ran(partly *q, void *memory)
{
    const mr_program *p = q->p;
    mr_code rc = MR_OK;
    char *at = memory;

    for (int i = 0; rc == MR_OK && i < p->n_steps; i++) {
        const mr_step_watch *w = mr__step_watch(p, &p->steps[i], at);

        at += mr__step_launch_bytes(p, &p->steps[i]);
        rc = step_ran(q, &p->steps[i], w == NULL ? NULL : w->at.why);
    }
    return rc == MR_OK && !say(q) ? MR_E_MEMORY : rc;
}

static bool
any_watched(const mr_program *p)
{
    static char here;

    for (int i = 0; i < p->n_steps; i++)
        if (mr__step_watch(p, &p->steps[i], &here) != NULL)
            return true;
    return false;
}

mr_code
mr__program_ran(const mr_program *p, const mr_kernel_args *a, void *memory)
{
    mr_error_record *all;
    mr_code rc = MR_OK;
    partly q;

    if (a->partial->in == NULL && !any_watched(p))
        return MR_OK;
    all = reason_of_all(p, memory);
    if (all != NULL) {
        mr__error_raise(all);
        rc = mr__error_record_code(all);
    } else if (!partly_begin(&q, p, a)) {
        rc = MR_E_MEMORY;
    } else {
        rc = all_ran(&q, memory);
        partly_end(&q);
    }
    drop_reasons(p, memory);
    return rc;
}
