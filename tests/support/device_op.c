/* SPDX-License-Identifier: Apache-2.0
 *
 * device_op.c -- an operator of the tests' own.
 *
 * It brings its own execution, so no device's table names it, and it never
 * fuses: each node of it that reaches memory is one run.
 */
#include "support/device_op.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/error.h"
#include "eval/device.h"
#include "eval/registry.h"
#include "graph/op.h"

static _Atomic int runs[MRT_COUNTERS];
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_cond = PTHREAD_COND_INITIALIZER;
static bool is_open[MRT_GATES]; /* guarded by gate_lock */

static const mr_field fields[] = {
    MR_FIELD(1, INT, mrt_counted, counter),
    MR_FIELD(2, INT, mrt_counted, gate),
    MR_FIELD(3, INT, mrt_counted, fail),
    MR_FIELD(4, INT, mrt_counted, n_fails),
    MR_FIELD(5, INT, mrt_counted, microseconds),
};

static mr_code
counted_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    return MR_OK;
}

static const void *
counted_plan(const mr_node *n, const mr_kernel_args *a, uint64_t given,
             mr_arena *arena)
{
    (void)a;
    (void)given;
    (void)arena;
    return mr__params(n);
}

static int
counted_lies_in(const void *plan, int k)
{
    (void)plan;
    (void)k;
    return -1;
}

static size_t
counted_workspace(const void *plan)
{
    (void)plan;
    return 0;
}

static double
counted_cost(const void *plan)
{
    (void)plan;
    return 1000.0;
}

static void
wait_at(int gate)
{
    pthread_mutex_lock(&gate_lock);
    while (!is_open[gate])
        pthread_cond_wait(&gate_cond, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

/* Where element i in row-major order lies. */
static int64_t
offset_of(const mr_kernel_view *v, int64_t i)
{
    int64_t at = 0;

    for (int32_t k = v->ndim - 1; k >= 0; i /= v->dim[k--])
        at += i % v->dim[k] * v->stride[k];
    return at;
}

static mr_code
counted_run(const void *plan, const mr_kernel_args *a)
{
    const mrt_counted *how = plan;
    /* relaxed: a count, read after the evaluation */
    int before =
        atomic_fetch_add_explicit(&runs[how->counter], 1, memory_order_relaxed);
    const float *x = a->in[0].data;
    float *y = a->out[0].data;

    if (how->gate > 0)
        wait_at((int)how->gate);
    if (how->microseconds > 0)
        nanosleep(&(struct timespec){.tv_nsec = how->microseconds * 1000},
                  NULL);
    if (how->fail != MR_OK && (how->n_fails == 0 || before < how->n_fails))
        return mr__fail((mr_code)how->fail, "asked to fail");
    for (int64_t i = 0; i < a->out[0].size; i++)
        y[i] = x[offset_of(&a->in[0], i)] + 1.0F;
    return MR_OK;
}

static const mr_device_table *
counted_device(const mr_node *n)
{
    (void)n;
    return mr__device_host();
}

static const mr_op_exec exec = {.device = counted_device,
                                .plan = counted_plan,
                                .lies_in = counted_lies_in,
                                .workspace = counted_workspace,
                                .cost = counted_cost,
                                .run = counted_run};

static const mr_op op = {
    .id = 0,
    .n_in = 1,
    .n_out = 1,
    .n_fields = sizeof fields / sizeof *fields,
    .params_bytes = sizeof(mrt_counted),
    .name = "counted",
    .fields = fields,
    .infer = counted_infer,
    .exec = &exec,
};

mr_array *
mrt_counted_op_at(const char *site, mr_array *x, mrt_counted how)
{
    struct mr__door old = mr__error_door(op.name, site);
    mr_array *y = x == NULL ? NULL : mr__node_new(&op, &how, 1, &x);

    mr__error_door_restore(old);
    return y;
}

int
mrt_runs(int counter)
{
    return atomic_load_explicit(&runs[counter], memory_order_relaxed);
}

void
mrt_counters_clear(void)
{
    for (int i = 0; i < MRT_COUNTERS; i++)
        atomic_store_explicit(&runs[i], 0, memory_order_relaxed);
    pthread_mutex_lock(&gate_lock);
    for (int i = 0; i < MRT_GATES; i++)
        is_open[i] = false;
    pthread_mutex_unlock(&gate_lock);
}

void
mrt_gate_open(int gate)
{
    pthread_mutex_lock(&gate_lock);
    is_open[gate] = true;
    pthread_cond_broadcast(&gate_cond);
    pthread_mutex_unlock(&gate_lock);
}
