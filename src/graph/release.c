/* SPDX-License-Identifier: Apache-2.0
 *
 * release.c -- references of nodes: letting go without recursion, and the
 * users' side with its checks.
 *
 * A node whose last reference goes is put on a list through its `plan` field,
 * which nobody else can need any more; the list is worked off in a loop that
 * puts the inputs that die with it on the same list.  A chain of any length
 * goes in constant memory.
 *
 * What is lent (lend.h) lives while it has a counted reference or is noted
 * somewhere.
 * Called by: everything that holds arrays.  Calls: lend.c, array/, base/.
 */
#include "graph/node.h"

#include "array/buffer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"
#include "graph/lend.h"
#include "graph/op.h"
#include "marram/array.h"

/* An absent optional array.  Its count is so high that no imbalance of
 * retains and releases inside the library reaches 0. */
static mr_array none = {
    .refs = MR_REF_ONE << 37,
    .state = MR_DONE,
    .n_out = 1,
    .op = &mr__op_data,
};
mr_array *const mr_none_array = &none;

/* A reference of a lent array; true: nobody has another. */
static __attribute__((noinline)) bool
drop_lent(mr_array *x)
{
    /* acquire, here and below: see drop() */
    uint64_t refs = atomic_load_explicit(&x->refs, memory_order_acquire);

    for (;;) {
        bool last = (refs & MR_REF_TOTAL) == 1;
        uint64_t next =
            last ? refs | MR_REF_ASKED : (refs - MR_REF_ONE) & ~MR_REF_ASKED;

        if (!atomic_compare_exchange_weak_explicit(&x->refs, &refs, next,
                                                   memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        if (!last || mr__lend_give(x)) /* then x may be gone already */
            return false;
        refs = atomic_load_explicit(&x->refs, memory_order_acquire);
        if (refs == next)
            return true;
    }
}

/* True when that was the last reference. */
static inline bool
drop(mr_array *x)
{
    /* acquire: who sees 1 is alone, after the releases of all others.  acq_rel:
     * the last to go frees after the reads of all others. */
    uint64_t refs = atomic_load_explicit(&x->refs, memory_order_acquire);

    if (refs == MR_REF_ONE)
        return true;
    do {
        if (__builtin_expect((refs & MR_REF_LENT) != 0, 0))
            return drop_lent(x);
    } while (!atomic_compare_exchange_weak_explicit(
        &x->refs, &refs, refs - MR_REF_ONE, memory_order_acq_rel,
        memory_order_acquire));
    return (refs & MR_REF_TOTAL) == 1;
}

/* Edge i of x, which leads to `in`, ends; true when that was the last
 * reference. */
static inline bool
drop_edge(const mr_array *x, int i, mr_array *in)
{
    mr_lend *noted;

    if (__builtin_expect((x->flags & MR_NODE_BORROWS) != 0, 0)) {
        noted = mr__lends(x)[i];
        if (noted != NULL && !mr__lend_end(noted))
            return false;
    }
    return drop(in);
}

static inline mr_array *
link_dead(mr_array *x, mr_array *list)
{
    x->plan = list;
    return x;
}

/* Frees a dead node but for its inputs. */
static void
node_free(mr_array *x)
{
    mr_buffer *b = x->buffer;

    if (__builtin_expect(x->tuple != NULL, 0))
        for (int k = 0; k < x->n_out; k++)
            mr__buffer_release(x->tuple[k].buffer);
    if (x->error)
        mr__error_release(x->error);
    /* The block of a scalar is its buffer's, and views may still read it. */
    if (!(x->flags & MR_NODE_SCALAR_CONST))
        mr__dealloc(x);
    if (b)
        mr__buffer_release(b);
}

static void
free_dead(mr_array *list)
{
    while (list) {
        mr_array *x = list;

        list = x->plan;
        for (int i = 0; i < mr__n_edges(x); i++)
            if (x->in[i] && drop_edge(x, i, x->in[i]))
                list = link_dead(x->in[i], list);
        node_free(x);
    }
}

void
mr__release(mr_array *x)
{
    if (x && drop(x))
        free_dead(link_dead(x, NULL));
}

void
mr__node_detach(mr_array *x)
{
    mr_array *dead = NULL;

    if (x->trace != 0 && mr__trace_live(x->trace))
        return;
    for (int i = 0; i < mr__n_edges(x); i++) {
        /* acq_rel: of two who detach, each edge has one */
        mr_array *in = __atomic_exchange_n(&x->in[i], NULL, __ATOMIC_ACQ_REL);

        if (in && drop_edge(x, i, in))
            dead = link_dead(in, dead);
    }
    free_dead(dead);
}

/* ---- the users' side ---------------------------------------------------- */

mr_array *
mr_retain(mr_array *x)
{
    /* relaxed: whoever retains already has a reference */
    if (x && x != mr_none_array)
        atomic_fetch_add_explicit(&x->refs, MR_REF_USER, memory_order_relaxed);
    return x;
}

static void
report_misuse(const mr_array *x)
{
    const char *site = x->site ? x->site : "an unknown line";

    mr__log(MR_LOG_ERROR,
            "mr_release of an array (%s, made at %s) of which the caller has "
            "no reference: a scope owns it, or it was released before",
            x->op->name, site);
    mr__fail(MR_E_STATE,
             "mr_release of an array (%s, made at %s) of which the caller has "
             "no reference; use mr_retain to have one",
             x->op->name, site);
    if (mr__defer_depth == 0 && !mr__pool_is_worker())
        mr__log_flush();
}

void
mr_release(mr_array *x)
{
    uint64_t refs, plain = 0;

    if (x == NULL || x == mr_none_array)
        return;
    /* acquire: see drop() */
    refs = atomic_load_explicit(&x->refs, memory_order_acquire);
    if (refs == MR_REF_USER) {
        free_dead(link_dead(x, NULL));
        mr__buffer_drain();
        return;
    }
    do {
        if (refs >> 40 == 0) {
            report_misuse(x);
            return;
        }
        plain = refs & MR_REF_LENT ? MR_REF_ONE : 0;
        /* acq_rel: see drop() */
    } while (!atomic_compare_exchange_weak_explicit(
        &x->refs, &refs, refs - MR_REF_USER + plain, memory_order_acq_rel,
        memory_order_relaxed));
    if (plain != 0 ? drop_lent(x) : (refs & MR_REF_TOTAL) == 1)
        free_dead(link_dead(x, NULL));
    mr__buffer_drain();
}
