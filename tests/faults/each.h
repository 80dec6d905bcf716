/* SPDX-License-Identifier: Apache-2.0
 *
 * each.h -- a call with each of its allocations failing in turn.
 *
 * mrt_each_failure (support/base.h) ends at the first call that succeeds.  A
 * whole evaluation may live through a failed allocation (a kernel's scratch is
 * asked for again, a table in front of another is only not filled), so here a
 * call counts as not hit only when it made fewer allocations than it was let.
 * Each is tried twice: one allocation fails, and all fail from there on.
 */
#ifndef MRT_FAULTS_EACH_H
#define MRT_FAULTS_EACH_H

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "array/buffer.h"
#include "base/alloc.h"
#include "support/mrt.h"

/* As in eval/task.h, whose mr_view is not that of the public header. */
int64_t mr__tasks_in_flight(void);

/* Makes results and evaluates them; NULL after a failure.  Runs in a scope. */
typedef mr_tree *(*each_call)(void *arg);

typedef struct each_case {
    const char *name;
    each_call call;
    void *arg;
    mr_tree *keep; /* leaves whose bits no failure may change, or NULL */
    void (*after)(void *arg); /* what the call left beside arrays, or NULL */
} each_case;

/* ---- bits ---------------------------------------------------------------- */

typedef struct each_bits {
    int n;
    char *data[64];
    size_t bytes[64];
} each_bits;

static inline mr_array **
each_leaves(const mr_tree *t, int *n)
{
    mr_array **leaf;

    *n = mr_tree_n_leaves(t);
    leaf = malloc((size_t)(*n + 1) * sizeof *leaf);
    if (*n > 0)
        assert_int_equal(mr_tree_leaves(t, leaf, *n), MR_OK);
    return leaf;
}

static inline void
each_bits_take(each_bits *b, const mr_tree *t)
{
    mr_array **leaf = each_leaves(t, &b->n);

    assert_true(b->n <= 64);
    for (int i = 0; i < b->n; i++) {
        b->bytes[i] = mr_array_nbytes(leaf[i]);
        b->data[i] = malloc(b->bytes[i] + 1);
        assert_int_equal(mr_array_copy_out(leaf[i], b->data[i], b->bytes[i]),
                         MR_OK);
    }
    free(leaf);
}

static inline void
each_bits_free(each_bits *b)
{
    for (int i = 0; i < b->n; i++)
        free(b->data[i]);
}

/* t still has these bits. */
static inline void
each_bits_check(const each_bits *b, const mr_tree *t, const char *name,
                int64_t at)
{
    each_bits now;

    each_bits_take(&now, t);
    assert_int_equal(now.n, b->n);
    for (int i = 0; i < b->n; i++) {
        assert_int_equal(now.bytes[i], b->bytes[i]);
        if (memcmp(now.data[i], b->data[i], b->bytes[i]) != 0)
            fail_msg("%s, allocation %" PRId64 ": array %d has other bits",
                     name, at, i);
    }
    each_bits_free(&now);
}

/* ---- the loop ------------------------------------------------------------ */

/* Blocks that live once all work has come to its end. */
static inline int64_t
each_live(void)
{
    while (mr__tasks_in_flight() > 0)
        sched_yield();
    mr__buffer_drain();
    return mr__alloc_live();
}

#define EACH_ALL ((int64_t)1 << 40)

/* One call in a scope with `run` allocations failing from `at` on (-1: none).
 * Gives whether one failed; *ok says whether the call succeeded. */
static inline bool
each_once(const each_case *c, const each_bits *want, int64_t at, int64_t run,
          bool *ok)
{
    mr_scope s = mr_scope_begin();
    int64_t tried = mr__alloc_count();
    mr_tree *r;
    bool hit;
    mr_error e;

    mr__alloc_fail_run(at, run);
    r = c->call(c->arg);
    mr__alloc_fail_after(-1);
    hit = at >= 0 && mr__alloc_count() - tried > at;
    *ok = r != NULL;
    e = mr_error_last();
    if (r == NULL && (!hit || e.code != MR_E_MEMORY))
        fail_msg("%s, allocation %" PRId64 ": %s: %s", c->name, at,
                 mr_code_name(e.code), e.message);
    if (r != NULL)
        each_bits_check(want, r, c->name, at);
    mr_error_take();
    if (c->after != NULL)
        c->after(c->arg);
    assert_int_equal(mr_scope_end(s), MR_OK);
    return hit;
}

typedef struct each_count {
    int injected, failed;
} each_count;

/* All allocations in turn; keep's bits and the number of blocks stay. */
static inline void
each_in_turn(const each_case *c, const each_bits *want, const each_bits *keep,
             int64_t run, each_count *n)
{
    bool ok, hit = true;

    for (int64_t at = 0; hit; at++) {
        int64_t live = each_live();

        hit = each_once(c, want, at, run, &ok);
        if (each_live() != live)
            fail_msg("%s, allocation %" PRId64 ": %" PRId64 " blocks leaked",
                     c->name, at, each_live() - live);
        n->injected += hit;
        n->failed += !ok;
        if (c->keep != NULL)
            each_bits_check(keep, c->keep, c->name, at);
        each_once(c, want, -1, 1, &ok); /* the next call works */
        assert_true(ok);
        assert_int_equal(each_live(), live);
    }
}

static inline each_count
each_run(const each_case *c)
{
    each_count one = {0, 0}, all = {0, 0};
    each_bits want = {0}, keep = {0};
    mr_scope s = mr_scope_begin();
    bool ok;

    /* caches and the tables of threads are filled by the first calls */
    each_bits_take(&want, c->call(c->arg));
    if (c->after != NULL)
        c->after(c->arg);
    if (c->keep != NULL)
        each_bits_take(&keep, c->keep);
    assert_int_equal(mr_scope_end(s), MR_OK);
    each_once(c, &want, -1, 1, &ok);
    each_in_turn(c, &want, &keep, 1, &one);
    each_in_turn(c, &want, &keep, EACH_ALL, &all);
    each_bits_free(&want);
    each_bits_free(&keep);
    print_message("  %s: %d allocations failed in turn, %d calls with them; "
                  "%d points of no memory\n",
                  c->name, one.injected, one.failed, all.injected);
    return one;
}

/* x[k] = sin(k) as a float32 array of these dims. */
static inline mr_array *
each_waves(mr_shape shape)
{
    int64_t n = 1;

    for (int64_t i = 0; i < shape.n; i++)
        n *= shape.dim[i];
    return mr_reshape(mr_sin(mr_arange(MR_INTEGER(0), MR_INTEGER(n),
                                       MR_INTEGER(1), MR_FLOAT32)),
                      shape);
}

/* The tree once it is evaluated, else NULL. */
static inline mr_tree *
each_evaluated(mr_tree *t)
{
    return t != NULL && mr_eval_tree(t) == MR_OK ? t : NULL;
}

#endif
