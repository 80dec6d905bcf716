/* SPDX-License-Identifier: Apache-2.0
 *
 * tier1.c -- which steps get native code, and when they are handed over.
 *
 * Hot is what has used so much time on the interpreter that a quick compilation
 * (5 to 15 ms of another thread) is paid back soon: estimated, since a clock
 * would cost more than small programs do.  Code that is better by a few to 30 %
 * takes as long again, and is asked for when there was more to do.
 * Called by: program.c, run.c.  Calls: jit.c.
 */
#include "compile/tier1.h"

#include <string.h>

#include "base/alloc.h"
#include "marram/error.h"
#include "marram/sys/testing.h"

#define WARM_NANOSECONDS   3e5 /* it may well be hot soon */
#define HOT_NANOSECONDS    3e6
#define HOTTER_NANOSECONDS 20e6
/* Steps below this many points gain little: a call is most of their time. */
#define SMALL_POINTS 512

static void *
copy_of(mr_arena *a, const void *from, size_t bytes)
{
    void *p = mr__arena_alloc(a, bytes + 1);

    if (p != NULL && bytes > 0)
        memcpy(p, from, bytes);
    return p;
}

/* The step's program and launch in memory that outlives it. */
static bool
code_copy(mr_tier1 *t, const mr_block_code *c)
{
    mr_arena *a = &t->arena;

    t->code = *c;
    t->code.reg_dtype = copy_of(a, c->reg_dtype, c->n_reg);
    t->code.reg_row = copy_of(a, c->reg_row, c->n_reg);
    t->code.consts = copy_of(a, c->consts, c->n_const * sizeof *c->consts);
    t->code.inst = copy_of(a, c->inst, c->n_inst * sizeof *c->inst);
    t->code.out = copy_of(a, c->out, c->n_out * sizeof *c->out);
    if (c->source != NULL &&
        (t->code.source = copy_of(a, c->source, c->n_in * sizeof *c->source)) ==
            NULL)
        return false;
    if (c->n_indices > 0 &&
        (t->code.indices =
             copy_of(a, c->indices, c->n_indices * sizeof *c->indices)) == NULL)
        return false;
    return t->code.reg_dtype != NULL && t->code.reg_row != NULL &&
           t->code.consts != NULL && t->code.inst != NULL &&
           t->code.out != NULL;
}

static mr_tier1 *
tier1_new(const mr_step *s)
{
    mr_tier1 *t = mr__alloc_zero(sizeof *t);

    if (t == NULL)
        return NULL;
    atomic_init(&t->refs, 1);
    if (!code_copy(t, &s->block->code)) {
        mr__tier1_release(t);
        return NULL;
    }
    t->pieces = mr__step_is_joined(s);
    mr__step_launch(s, t->pieces, &t->launch);
    return t;
}

void
mr__tier1_release(mr_tier1 *t)
{
    if (t == NULL ||
        atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    mr__jit_code_release(t->used, t->n_used);
    mr__arena_free(&t->arena);
    mr__dealloc(t);
}

static bool
is_worth_it(const mr_step *s)
{
    if (s->block == NULL || s->ready == NULL)
        return false;
    return mr__block_points(s->block) >= SMALL_POINTS ||
           mr__jit_mode() == MR_JIT_NOW;
}

static void
step_submit(mr_step *s, bool quick)
{
    mr_tier1 *none = NULL, *t;

    if (!is_worth_it(s))
        return;
    /* acquire: pairs with the release below */
    t = atomic_load_explicit(&s->tier1, memory_order_acquire);
    if (t != NULL) {
        mr__jit_submit(t, quick);
        return;
    }
    t = tier1_new(s);
    if (t == NULL)
        return;
    /* release: pairs with mr__tier1_ready.  Another thread may have been here
     * first. */
    if (atomic_compare_exchange_strong_explicit(
            &s->tier1, &none, t, memory_order_release, memory_order_relaxed))
        mr__jit_submit(t, quick);
    else
        mr__tier1_release(t);
}

/* Native code is never worth an error: without memory there is none. */
static void
submit_all(const mr_program *p, bool quick)
{
    struct mr__error_stash aside = mr__error_stash();

    for (int i = 0; i < p->n_steps; i++)
        step_submit(&p->steps[i], quick);
    (void)mr_error_take();
    mr__error_unstash(aside);
}

static _Atomic bool quick_now; /* relaxed: a test's wish */

void
mr_test_jit_quick(bool quick)
{
    atomic_store_explicit(&quick_now, quick, memory_order_relaxed);
}

void
mr__tier1_program(const mr_program *p)
{
    if (p->heat == NULL)
        return;
    if (mr__jit_mode() == MR_JIT_NOW) {
        submit_all(p, atomic_load_explicit(&quick_now, memory_order_relaxed));
        mr__jit_wait();
    } else if (mr__jit_mode() == MR_JIT_BACKGROUND &&
               p->cost >= WARM_NANOSECONDS) {
        mr__jit_prepare();
    }
}

void
mr__tier1_ran(const mr_program *p)
{
    mr_heat *h = p->heat;
    uint32_t runs;
    int asked;
    double spent;

    if (h == NULL)
        return;
    /* relaxed: a count that may miss some, and a switch; who asks twice is
     * answered once */
    asked = atomic_load_explicit(&h->asked, memory_order_relaxed);
    if (asked == MR_ASKED_ALL)
        return;
    runs = atomic_load_explicit(&h->runs, memory_order_relaxed) + 1;
    atomic_store_explicit(&h->runs, runs, memory_order_relaxed);
    spent = p->cost * runs;
    if (spent < WARM_NANOSECONDS)
        return;
    if (mr__jit_mode() != MR_JIT_BACKGROUND) {
        atomic_store_explicit(&h->asked, MR_ASKED_ALL, memory_order_relaxed);
        return;
    }
    mr__jit_prepare();
    if (spent < HOT_NANOSECONDS)
        return;
    if (asked == MR_ASKED_NOTHING) {
        atomic_store_explicit(&h->asked, MR_ASKED_QUICK, memory_order_relaxed);
        submit_all(p, true);
    } else if (spent >= HOTTER_NANOSECONDS) {
        atomic_store_explicit(&h->asked, MR_ASKED_ALL, memory_order_relaxed);
        submit_all(p, false);
    }
}
