/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c -- the kernel of an operator over a batch: that operator's kernel,
 * once for each entry.  Each run spreads itself over the pool.
 *
 * Called by: eval through the table.  Calls: the rows of the table.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "cpu/cpu.h"

/* The arguments of one entry's kernel. */
typedef struct entry_args {
    mr_kernel_args a;
    mr_kernel_view *view;    /* inputs, then outputs */
    const mr_kernel *kernel; /* NULL: the operator's own execution */
    const mr_op_exec *exec;
    mr_arena arena; /* of its plan */
    mr_partial partial;
} entry_args;

static mr_kernel_view
view_of(mr_dtype t, int32_t ndim, const int64_t *dim, void *data)
{
    mr_kernel_view v = {.data = data, .dtype = t, .ndim = ndim, .size = 1};

    v.dim = dim;
    v.stride = dim + ndim; /* fresh nodes are row-major */
    for (int32_t i = 0; i < ndim; i++)
        v.size *= dim[i];
    return v;
}

/* Views of the first entry. */
static mr_code
entry_begin(entry_args *e, const mr_kernel_args *a)
{
    const mr_loop *l = mr__loop_at(a->params);
    const mr_array *y = l->entry;
    bool tuple = y->flags & MR_NODE_TUPLE;

    e->kernel = mr__cpu_kernel(y->op->id);
    if (e->kernel == NULL && y->op->exec == NULL)
        return mr__fail(MR_E_UNSUPPORTED, "the device cpu has no kernel for %s",
                        y->op->name);
    e->view =
        mr__alloc_array((size_t)(y->n_in + y->n_out) + 1, sizeof *e->view);
    if (e->view == NULL)
        return MR_E_MEMORY;
    for (int i = 0; i < y->n_in; i++)
        e->view[i] = view_of((mr_dtype)y->in[i]->dtype, y->in[i]->ndim,
                             y->in[i]->dim, a->in[i + 1].data);
    for (int k = 0; k < y->n_out; k++)
        e->view[y->n_in + k] =
            tuple
                ? view_of(y->tuple[k].dtype, y->tuple[k].ndim, y->tuple[k].dim,
                          a->out[k].data)
                : view_of((mr_dtype)y->dtype, y->ndim, y->dim, a->out[k].data);
    e->a = (mr_kernel_args){.op = y->op,
                            .params = y->params,
                            .n_in = y->n_in,
                            .n_out = y->n_out,
                            .in = e->view,
                            .out = e->view + y->n_in,
                            .workspace = a->workspace,
                            .partial = &e->partial};
    e->exec = y->op->exec;
    if (e->kernel != NULL)
        return MR_OK;
    e->a.plan = e->exec->plan(y, &e->a, 0, &e->arena);
    return e->a.plan != NULL ? MR_OK : mr__error_code();
}

static void
entry_end(entry_args *e)
{
    mr__arena_free(&e->arena);
    mr__dealloc(e->view);
}

/* An entry lacks a result: the batch does. */
static mr_code
entry_run(entry_args *e)
{
    mr_error_record *why;
    mr_code rc = e->kernel != NULL ? e->kernel->run(&e->a)
                                   : e->exec->run(e->a.plan, &e->a);

    why = e->partial.out;
    if (rc != MR_OK || why == NULL)
        return rc;
    mr__error_raise(why);
    rc = mr__error_record_code(why);
    mr__error_release(why);
    e->partial.out = NULL;
    return rc;
}

/* To the next entry. */
static void
entry_step(entry_args *e, const mr_loop *l)
{
    for (int i = 0; i < e->a.n_in + e->a.n_out; i++) {
        mr_kernel_view *v = &e->view[i];

        if (i >= e->a.n_in || l->batched[i])
            v->data = (char *)v->data + v->size * mr__dtype_size(v->dtype);
    }
}

mr_code
mr__cpu_loop(const mr_kernel_args *a)
{
    const mr_loop *l = mr__loop_at(a->params);
    entry_args e = {.view = NULL};
    mr_code rc = entry_begin(&e, a);

    for (int64_t i = 0; rc == MR_OK && i < l->size; i++) {
        rc = entry_run(&e);
        entry_step(&e, l);
    }
    if (rc != MR_OK)
        mr__error_annotate(mr__op_label(l->entry->op), l->entry->site,
                           "in one entry of a batch");
    entry_end(&e);
    return rc;
}

size_t
mr__cpu_loop_workspace(const mr_kernel_args *a)
{
    entry_args e = {.view = NULL};
    size_t bytes = 0;

    if (entry_begin(&e, a) != MR_OK)
        bytes = 0; /* the run says why */
    else if (e.kernel == NULL)
        bytes = e.exec->workspace(e.a.plan);
    else if (e.kernel->workspace != NULL)
        bytes = e.kernel->workspace(&e.a);
    entry_end(&e);
    return bytes;
}

double
mr__cpu_loop_cost(const mr_kernel_args *a)
{
    const mr_loop *l = mr__loop_at(a->params);
    entry_args e = {.view = NULL};
    double each = 1000.0;

    if (entry_begin(&e, a) != MR_OK)
        each = 1000.0;
    else if (e.kernel == NULL)
        each = e.exec->cost(e.a.plan);
    else if (e.kernel->cost != NULL)
        each = e.kernel->cost(&e.a);
    entry_end(&e);
    return each * (double)l->size;
}
