/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.c -- the public evaluation calls: plan, submit, help, wait.
 *
 * Called by: users, array/ (reading).  The plan lock is taken here and in
 * task.c alone.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sized.h"
#include "eval/alone.h"
#include "eval/check.h"
#include "eval/fork.h"
#include "eval/hooks.h"
#include "eval/line.h"
#include "eval/plan.h"
#include "eval/registry.h"
#include "eval/stats.h"
#include "eval/stream.h"
#include "eval/transfer.h"
#include "eval/wait.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/tree.h"

mr_lock mr__plan_lock = MR_LOCK_INIT(MR_RANK_PLAN, "plan");

/* Tasks, and bytes that were taken for those of earlier asynchronous
 * evaluations, that may be in flight before one waits. */
#define MAX_IN_FLIGHT       4096
#define MAX_BYTES_IN_FLIGHT ((size_t)256 << 20)
/* Where the windows of a long plan run while it is made. */
enum run_where { RUN_HERE, RUN_ON_WORKERS };
/* Work above this many nanoseconds gives the interpreter lock up. */
#define LONG_WORK 20000.0

static struct {
    uint64_t plans, kernels, fused;
} counts; /* guarded by the plan lock */

/* ---- the window
 * ---------------------------------------------------------------------------
 */

enum { WINDOW_MOST = 1 << 20 };

static _Atomic uint32_t window_nodes = MR_PLAN_WINDOW; /* relaxed: a setting */

uint64_t
mr_eval_set_window(uint64_t operations)
{
    if (operations == 0)
        operations = MR_PLAN_WINDOW;
    if (operations > WINDOW_MOST)
        operations = WINDOW_MOST;
    return atomic_exchange_explicit(&window_nodes, (uint32_t)operations,
                                    memory_order_relaxed);
}

/* Before main, and before any plan. */
__attribute__((constructor)) static void
read_environment(void)
{
    uint64_t n;

    if (mr__env_operations("MARRAM_EVAL_WINDOW", &n))
        mr_eval_set_window(n);
}

/* ---- what others count
 * ----------------------------------------------------------- */

static _Atomic uint64_t ran_on_worker; /* relaxed: a figure */

void
mr__stats_on_worker(void)
{
    atomic_fetch_add_explicit(&ran_on_worker, 1, memory_order_relaxed);
}

mr_code
mr_stats_get(mr_stats *out)
{
    mr_stats s = {.size = sizeof s};
    uint64_t alone = mr__streams_ran_alone();

    mr__lock_take(&mr__plan_lock);
    s.plan_holds = mr__plan_lock.holds;
    s.plan_waits = mr__plan_lock.waits;
    s.kernels_run = counts.kernels + alone;
    s.groups_fused = counts.fused;
    mr__lock_drop(&mr__plan_lock);
    s.nodes_made = mr__nodes_made();
    s.tasks_run = mr__tasks_run() + alone;
    s.ran_on_worker =
        atomic_load_explicit(&ran_on_worker, memory_order_relaxed);
    s.ran_on_caller =
        s.tasks_run > s.ran_on_worker ? s.tasks_run - s.ran_on_worker : 0;
    s.ahead = mr__deep_evaluations();
    return mr__sized_give(out, &s, sizeof s, "mr_stats");
}

/* ---- planning
 * --------------------------------------------------------------------- */

static bool
device_fuses(mr_k k, mr_dtype operand)
{
    /* one rule for all devices that are here: the CPU's */
    return mr__k_supports(k, operand);
}

/* On devices with queues each is launched by itself. */
static bool
device_joins(const void *ctx, const mr_array *x)
{
    const mr_plan *p = ctx;
    uint32_t stream =
        x->stream == 0 ? p->stream : mr__stream_planned(x->stream, p->stream);
    const mr_device_table *d = mr__stream_device(stream);
    const mr_kernel *k;

    if (mr__device_has_queues(d))
        return false;
    k = mr__device_kernel(d, x->op->id);
    return k != NULL && k->epilogue;
}

/* The plan of nothing. */
static void
plan_clear(mr_plan *p)
{
    memset(p, 0, offsetof(mr_plan, few));
    memset((char *)p + offsetof(mr_plan, stack), 0,
           sizeof *p - offsetof(mr_plan, stack));
    p->last = &p->first;
    p->most = atomic_load_explicit(&window_nodes, memory_order_relaxed);
}

/* One window, under the plan lock. */
static mr_code
plan_window(mr_plan *p, mr_array *const *roots, size_t n, bool *more)
{
    mr_fuse_rules rules = {
        .fuses = device_fuses, .joins = device_joins, .ctx = p};
    mr_fuse_group *groups = NULL;
    mr_code rc;

    p->first = NULL;
    p->last = &p->first;
    p->n_recycled = p->recycled_cap = p->n_owned = p->owned_cap = 0;
    p->n_other = p->other_cap = 0;
    p->stream = mr__stream_planned(p->wish, p->own);
    p->destructive = false;
    p->n_tasks = p->n_kernels = p->n_fused = 0;
    p->arrivals = NULL;
    p->number = ++counts.plans;
    rc = mr__plan_walk(p, roots, n, more);
    if (rc == MR_OK && p->n > 0) {
        if (mr__checking())
            rules.mode = MR_FUSE_OFF;
        else if (mr__device_has_queues(mr__stream_device(p->stream)))
            rules.mode = MR_FUSE_NO_GATHERS;
        groups = mr__fuse(&p->window->arena, p->node, p->n, &rules);
        if (groups != NULL)
            mr__fuse_check(groups);
        rc = groups == NULL ? mr__error_code() : mr__plan_reserve(p, groups);
    }
    if (rc != MR_OK) {
        mr__plan_abandon(p);
        return rc;
    }
    mr__plan_submit(p);
    counts.kernels += (uint64_t)p->n_kernels;
    counts.fused += (uint64_t)p->n_fused;
    return MR_OK;
}

/* Other streams' work needs a drainer; ours we help with ourselves. */
static void
kick_others(const mr_plan *p)
{
    for (size_t i = 0; i < p->n_other; i++)
        mr__stream_kick(p->other[i]);
}

/* One window under the plan lock, with what is left of the walk held. */
static mr_code
plan_next(mr_plan *p, mr_array *const *roots, size_t n, bool *more)
{
    mr_code rc = MR_OK;

    mr__lock_take(&mr__plan_lock);
    mr__defer_user_code_begin();
    if (p->stack == NULL || p->depth == 0)
        rc = mr__plan_push_roots(p, roots, n);
    if (rc == MR_OK)
        rc = plan_window(p, roots, n, more);
    if (rc == MR_OK && *more)
        mr__plan_hold(p);
    else
        mr__plan_drop_stack(p);
    mr__defer_user_code_end();
    mr__lock_drop(&mr__plan_lock);
    return rc;
}

/* The window's work, before the next one is planned: here, or by a worker when
 * this thread may be interrupted meanwhile, or when a worker has the stream
 * still (its last task may have been the end of what we waited for before):
 * who plans on would take memory for all windows. */
static mr_code
run_window(const mr_plan *p, bool patient)
{
    void *token;
    mr_code rc;

    if (!patient && mr__stream_help(p->stream, NULL))
        return MR_OK;
    token = mr__block_begin();
    rc = mr__stream_wait(p->stream);
    mr__block_end(token);
    return rc;
}

static bool
too_many_tasks(void)
{
    return mr__tasks_in_flight() > MAX_IN_FLIGHT;
}

/* Whether who only submits is to wait; `own` bytes are what it took last, so
 * that a large step runs while the next is made. */
static bool
too_much_in_flight(size_t own)
{
    size_t bytes = mr__bytes_in_flight();

    return (bytes > own && bytes - own > MAX_BYTES_IN_FLIGHT &&
            mr__tasks_in_flight() > 0) ||
           too_many_tasks();
}

/* Walk, group, reserve, submit: window after window. */
static mr_code
plan_all(mr_plan *p, mr_array *const *roots, size_t n, enum run_where where)
{
    bool more = true;
    mr_code rc = MR_OK;

    while (rc == MR_OK && more) {
        p->window = mr__window_new();
        if (p->window == NULL) {
            mr__plan_drop_stack(p);
            return MR_E_MEMORY;
        }
        rc = plan_next(p, roots, n, &more);
        if (rc == MR_OK)
            kick_others(p);
        mr__window_release(p->window);
        if (rc != MR_OK || !more)
            continue;
        if (where == RUN_HERE || too_much_in_flight(p->taken_bytes))
            rc = run_window(p, p->cost > MR__PATIENT_NS && mr__may_interrupt());
        else
            mr__stream_kick(p->stream);
        if (rc != MR_OK)
            mr__plan_drop_stack(p);
    }
    return rc;
}

/* ---- waiting for memory
 * --------------------------------------------------------------------- */

/* A turn to plan: at once, or behind those who wait for memory. */
static __attribute__((cold)) void
take_turn(const mr_plan *p, uint64_t *place)
{
    void *token;

    if (*place == 0)
        *place = mr__line_join();
    if (mr__line_is_first(*place))
        return;
    token = mr__block_begin();
    mr__stream_help(p->stream, NULL);
    mr__line_wait(*place);
    mr__block_end(token);
}

/* Until something that runs has ended since `seen` tasks had: it may have given
 * memory back.  False: nothing did, and nothing runs. */
static __attribute__((cold)) bool
wait_for_memory(const mr_plan *p, uint64_t seen)
{
    void *token;
    bool flies = mr__tasks_in_flight() > 0;

    /* after in_flight, so that what ended in between is seen */
    if (mr__tasks_run() != seen)
        return true;
    if (!flies)
        return false;
    token = mr__block_begin();
    if (!mr__stream_help(p->stream, NULL))
        mr__tasks_wait_progress(1, 0);
    mr__block_end(token);
    return true;
}

/* A thread computes what the plan was to read: that is short. */
static __attribute__((cold)) void
wait_for_taken(mr_plan *p)
{
    void *token = mr__block_begin();

    mr__wait_node(p->taken);
    mr__block_end(token);
    mr__release(p->taken);
    p->taken = NULL;
}

/* The plan, again when memory may have come back. */
static mr_code
plan_in_turn(mr_plan *p, mr_array *const *roots, size_t n, enum run_where where)
{
    uint64_t place = 0, seen;
    mr_code rc;

    if (__builtin_expect(!mr__line_is_empty(), 0))
        take_turn(p, &place);
    for (;;) {
        seen = mr__tasks_run();
        rc = plan_all(p, roots, n, where);
        if (__builtin_expect(p->taken != NULL, 0)) {
            wait_for_taken(p);
            continue;
        }
        if (__builtin_expect(rc != MR_E_MEMORY, 1))
            break;
        if (place == 0)
            take_turn(p, &place);
        if (!wait_for_memory(p, seen)) {
            if (p->exceeds || !mr__pools_are_soft())
                break;
            p->exceeds = true;
        }
        mr_error_take();
    }
    if (place != 0)
        mr__line_leave(place);
    return rc;
}

/* Of a plan whose work is under way. */
typedef struct begun {
    uint32_t stream;
    double cost;
    size_t bytes; /* of its last window, when nobody waits for it */
    bool met_failure;
} begun;

static mr_code
start(mr_array *const *roots, size_t n, enum run_where where, begun *b)
{
    _Alignas(64) mr_plan p;
    mr_code rc;

    plan_clear(&p);
    p.counts_bytes = where == RUN_ON_WORKERS;
    p.wish = mr__stream_wish(mr__ctx.stream);
    p.own = p.stream = mr__stream_own();
    if (p.own == 0)
        return mr__error_code();
    rc = plan_in_turn(&p, roots, n, where);
    mr__dealloc(p.stack);
    if (rc != MR_OK) /* windows before the one that failed */
        mr__stream_kick(p.stream);
    *b = (begun){p.stream, p.cost, p.taken_bytes, p.met_failure};
    return rc;
}

/* ---- traces that ended
 * -------------------------------------------------------------- */

static void
detach_all(mr_array *const *nodes, size_t n)
{
    mr__lock_take(&mr__plan_lock);
    mr__defer_user_code_begin();
    for (size_t i = 0; i < n; i++)
        if (mr__state(nodes[i]) == MR_DONE &&
            (nodes[i]->trace == 0 || !mr__trace_live(nodes[i]->trace)))
            mr__node_detach(nodes[i]);
    mr__defer_user_code_end();
    mr__lock_drop(&mr__plan_lock);
}

/* ---- waiting
 * ------------------------------------------------------------------------ */

typedef struct hold {
    bool given_up; /* the interpreter lock */
    void *token;
} hold;

static void
give_up(hold *h)
{
    if (h->given_up)
        return;
    h->given_up = true;
    h->token = mr__block_begin();
}

/* Run something that x may wait for: its stream's work, else ours. */
static bool
help(const mr_array *x, uint32_t own)
{
    return mr__stream_help(x->stream, x) || mr__stream_help(own, x);
}

/* Sleep until x is submitted no more; false when interrupted. */
static bool
sleep_for(mr_array *x, bool may)
{
    mr__streams_adopt();
    if (!may) {
        mr__wait_node(x);
        return true;
    }
    while (!mr__wait_node_for(x, MR__POLL_NS))
        if (mr__interrupted())
            return false;
    return true;
}

/* Until x is submitted no more.  Long work goes to workers when this thread
 * may be interrupted. */
static mr_code
finish(mr_array *x, uint32_t own, double cost, bool may, hold *h)
{
    bool patient = may && cost > MR__PATIENT_NS;

    while (mr__state(x) == MR_SUBMITTED) {
        if (cost > LONG_WORK || cost == 0.0)
            give_up(h);
        if (patient) {
            mr__stream_kick(x->stream);
            mr__stream_kick(own);
        } else if (help(x, own)) {
            continue;
        }
        give_up(h);
        if (!sleep_for(x, may))
            return MR_E_CANCELLED;
    }
    return MR_OK;
}

/* Until no root is submitted any more: help its stream or ours, where its
 * producers may be, else sleep.  Short work of our own keeps the interpreter
 * lock.  Ours may hold tasks of this plan that no root waited for (a root may
 * have failed by another input): a worker gets them. */
static mr_code
finish_all(mr_array *const *roots, size_t n, uint32_t own, double cost)
{
    hold h = {false, NULL};
    bool may = (cost > LONG_WORK || cost == 0.0) && mr__may_interrupt();
    mr_code rc = MR_OK;

    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = finish(roots[i], own, cost, may, &h);
    mr__stream_kick(own);
    if (h.given_up)
        mr__block_end(h.token);
    return rc;
}

static bool
all_done(mr_array *const *roots, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mr__state(roots[i]) != MR_DONE)
            return false;
    return true;
}

static mr_code
first_failure(mr_array *const *roots, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mr__state(roots[i]) == MR_FAILED) {
            mr__error_raise(roots[i]->error);
            return mr__error_record_code(roots[i]->error);
        }
    return MR_OK;
}

/* The reason why x went back to `new`, if it did. */
static mr_code
transient_failure(mr_array *const *roots, size_t n)
{
    mr_code rc = MR_OK;

    mr__lock_take(&mr__plan_lock);
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        if (mr__state(roots[i]) == MR_NEW && roots[i]->error != NULL) {
            mr__error_raise(roots[i]->error);
            rc = mr__error_record_code(roots[i]->error);
        }
    mr__lock_drop(&mr__plan_lock);
    return rc;
}

/* Plan a copy of x on the host; its node in *copy, retained. */
static mr_code
plan_host_copy(mr_plan *p, mr_array *x, mr_array **copy)
{
    mr_place w = {
        .data = x->buffer->data, .buffer = x->buffer, .stride = mr__strides(x)};
    mr_code rc = MR_OK;

    w.data += x->offset * mr__dtype_size((mr_dtype)x->dtype);
    if (mr__place_bring(p, x, x, 0, &w)) {
        mr__plan_submit(p);
        *copy = mr__retain(mr__copy_on_host(x->buffer));
    } else {
        rc = mr__error_code();
        mr__error_annotate(x->op->name, x->site,
                           "while reading it on the host");
        mr__plan_abandon(p);
    }
    return rc;
}

/* Under the plan lock: host memory becomes what counts. */
static void
export_locked(mr_array *x)
{
    mr_array *copy = mr__copy_on_host(x->buffer);

    /* relaxed, both: readers without the lock have x from this thread */
    __atomic_store_n(&x->buffer->exported_writable, true, __ATOMIC_RELAXED);
    mr__copies_drop_on_devices(x->buffer);
    if (copy == NULL)
        return;
    __atomic_store_n(&copy->buffer->exported_writable, true, __ATOMIC_RELAXED);
    mr__copies_drop_on_devices(copy->buffer);
}

/* The node of a host copy of x, which may be on its way, retained; NULL when x
 * is on the host, or with the error set. */
static mr_code
find_host_copy(mr_array *x, bool writable, mr_array **copy)
{
    _Alignas(64) mr_plan p;
    mr_code rc = MR_OK;

    plan_clear(&p);
    p.exceeds = true; /* a reader does not stand in line */
    p.window = mr__window_new();
    if (p.window == NULL)
        return MR_E_MEMORY;
    mr__lock_take(&mr__plan_lock);
    mr__defer_user_code_begin();
    *copy = x->buffer->space == 0 ? NULL : mr__copy_on_host(x->buffer);
    if (*copy != NULL)
        mr__retain(*copy);
    else if (x->buffer->space != 0)
        rc = plan_host_copy(&p, x, copy);
    if (writable && (*copy == NULL || mr__state(*copy) == MR_DONE) &&
        rc == MR_OK)
        export_locked(x);
    mr__defer_user_code_end();
    mr__lock_drop(&mr__plan_lock);
    kick_others(&p);
    mr__window_release(p.window);
    return rc;
}

static void
wait_for(mr_array *copy)
{
    void *token = mr__block_begin();

    while (mr__state(copy) == MR_SUBMITTED)
        if (!mr__stream_help(copy->stream, copy))
            mr__wait_node(copy);
    mr__block_end(token);
}

static mr_code
on_host(mr_array *x, bool writable)
{
    mr_code rc = MR_OK;

    for (int left = 4; left > 0;) {
        mr_array *copy = NULL;
        mr_state s;

        if (rc != MR_OK)
            mr_error_take();
        rc = find_host_copy(x, writable, &copy);
        if (copy == NULL)
            return rc;
        s = mr__state(copy);
        if (s != MR_DONE) { /* then all of it is asked again */
            wait_for(copy);
            rc = first_failure(&copy, 1);
            if (rc == MR_OK)
                rc = transient_failure(&copy, 1);
            left -= rc != MR_OK;
        }
        mr__release(copy);
        if (s == MR_DONE)
            return MR_OK;
    }
    return rc;
}

static const char *
host_data(const mr_buffer *b)
{
    const char *data;
    mr_array *copy;

    mr__lock_take(&mr__plan_lock);
    copy = mr__copy_on_host((mr_buffer *)(uintptr_t)b);
    data = copy->buffer->data; /* lives as long as b */
    mr__lock_drop(&mr__plan_lock);
    return data;
}

/* Before main, so before any other thread: plain stores. */
__attribute__((constructor)) static void
set_hooks(void)
{
    mr__graph_detach_hook = detach_all;
    mr__graph_host_hook = on_host;
    mr__graph_host_data_hook = host_data;
}

static mr_code
evaluate(mr_array *const *roots, size_t n)
{
    begun b;
    mr_code rc;

    if ((roots[0]->flags & MR_NODE_ALONE) && mr__eval_alone(roots, n))
        return first_failure(roots, n);
    for (int attempt = 0; !all_done(roots, n); attempt++) {
        rc = first_failure(roots, n);
        if (rc == MR_OK && attempt >= 3)
            rc = transient_failure(roots, n);
        if (rc == MR_OK)
            rc = start(roots, n, RUN_HERE, &b);
        if (rc == MR_OK)
            rc = finish_all(roots, n, b.stream, b.cost);
        if (rc != MR_OK)
            return rc;
    }
    return MR_OK;
}

/* ---- the public calls
 * ---------------------------------------------------------------- */

static mr_code
check_arrays(mr_array *const *x, int n)
{
    if (n < 0 || (n > 0 && x == NULL))
        return mr__fail(MR_E_VALUE,
                        "%d arrays to evaluate%s: needs a list of "
                        "0 or more",
                        n, x == NULL ? " at NULL" : "");
    for (int i = 0; i < n; i++)
        if (x[i] == NULL)
            return mr__error_pending()
                       ? mr__error_code()
                       : mr__fail(MR_E_NULL, "array %d is NULL", i);
    return MR_OK;
}

static void
front_door(void)
{
    mr__buffer_drain();
    mr__log_flush();
}

mr_code
mr_eval_many(mr_array *const *x, int n)
{
    mr_code rc = check_arrays(x, n);

    if (rc != MR_OK)
        return rc;
    if (all_done(x, (size_t)n))
        return MR_OK;
    rc = evaluate(x, (size_t)n);
    front_door();
    return rc;
}

mr_code
mr_eval(mr_array *x)
{
    if (x == NULL)
        return check_arrays(&x, 1);
    return mr_eval_many(&x, 1);
}

/* Too much is in flight: a call that only submits waits here. */
static mr_code
wait_for_room(const begun *b)
{
    void *token = mr__block_begin();
    bool may = mr__may_interrupt();
    mr_code rc = MR_OK;

    while (rc == MR_OK && too_much_in_flight(b->bytes))
        if (may || !mr__stream_help(b->stream, NULL)) {
            mr__tasks_wait_progress(too_many_tasks() ? MAX_IN_FLIGHT : 1,
                                    may ? MR__POLL_NS : 0);
            if (may && mr__interrupted())
                rc = MR_E_CANCELLED;
        }
    mr__block_end(token);
    return rc;
}

mr_code
mr_async_eval(mr_array *const *x, int n)
{
    begun b;
    mr_code rc = check_arrays(x, n);

    if (rc == MR_OK)
        rc = first_failure(x, (size_t)n);
    if (rc != MR_OK)
        return rc;
    if (all_done(x, (size_t)n))
        return MR_OK;
    rc = start(x, (size_t)n, RUN_ON_WORKERS, &b);
    if (rc != MR_OK) {
        front_door();
        return rc;
    }
    mr__stream_kick(b.stream);
    if (b.met_failure) /* what the walk found out is told at once */
        rc = first_failure(x, (size_t)n);
    if (rc == MR_OK && too_much_in_flight(b.bytes))
        rc = wait_for_room(&b);
    front_door();
    return rc;
}

mr_code
mr_eval_tree(const mr_tree *t)
{
    int n;
    mr_array **leaves;
    mr_code rc;

    if (t == NULL)
        return mr__error_pending() ? mr__error_code()
                                   : mr__fail(MR_E_NULL, "the tree is NULL");
    n = mr_tree_n_leaves(t);
    leaves = mr__alloc_array((size_t)n + 1, sizeof *leaves);
    if (leaves == NULL)
        return MR_E_MEMORY;
    rc = mr_tree_leaves(t, leaves, n);
    if (rc == MR_OK)
        rc = mr_eval_many(leaves, n);
    mr__dealloc(leaves);
    return rc;
}
