/* SPDX-License-Identifier: Apache-2.0
 *
 * tier1.h -- native code for the block steps of programs.
 *
 * A program starts on the interpreter (tier 0).  When it is hot or large each
 * of its block steps gets an mr_tier1: what a JIT provider needs to know of
 * the step, in memory of its own, and the place where its code appears.  The
 * worker of jit.c fills that in by one store; whoever runs the step next uses
 * it.  Where the provider has *quick* code it comes first, and when the program
 * is hotter still, the rest of its time, by a second store to the same place;
 * the first code lives as long as the object, since some thread may be in it.
 * The object is counted, one reference for the step and one for the worker, so
 * a program may die while its steps are compiled.
 */
#ifndef MR_COMPILE_TIER1_H
#define MR_COMPILE_TIER1_H

#include <stdatomic.h>

#include "base/arena.h"
#include "compile/steps.h"

/* Code of a segment, kept in jit.c's cache. */
typedef struct mr_jit_code mr_jit_code;

struct mr_tier1 {
    _Atomic int refs; /* acq_rel on the way down */
    /* Release by the worker when it is complete, acquire by who runs it. */
    _Atomic(const void *) ready;
    /* Under the lock of the queue: */
    struct mr_tier1 *next;
    bool queued;             /* or being compiled */
    bool wants_quick, wants; /* what was asked for and is not yet done */
    double asked;            /* when, in nanoseconds; for the figures */
    /* The worker's until it lets its reference go: */
    bool finished; /* there is nothing better to come */
    mr_arena arena;
    mr_block_code code;
    mr_block_launch launch; /* data: addresses that stand for memory */
    bool pieces;            /* it follows a kernel, piece by piece */
    mr_jit_code **used;     /* n_used, counted */
    int n_used;
};

typedef enum mr_jit_mode {
    MR_JIT_OFF,
    MR_JIT_BACKGROUND,
    MR_JIT_NOW, /* before a program's first run */
    MR_JIT_UNKNOWN
} mr_jit_mode;

/* What MARRAM_JIT says; background without it. */
mr_jit_mode mr__jit_mode(void);
/* MR_E_VALUE when it says something unknown. */
mr_code mr__jit_check(void);

/* A new program, under no lock: with `now` its steps are compiled at once. */
void mr__tier1_program(const mr_program *p);
/* One more run of it: asks for code when it is hot, for better when hotter. */
void mr__tier1_ran(const mr_program *p);
void mr__tier1_release(mr_tier1 *t);

/* What to run a block step by: its code, or NULL when it has none as yet. */
static inline const void *
mr__tier1_ready(const mr_step *s)
{
    /* acquire: pairs with the release in tier1.c */
    const mr_tier1 *t = atomic_load_explicit(&s->tier1, memory_order_acquire);

    /* acquire: pairs with the release in jit.c */
    return t == NULL ? NULL
                     : atomic_load_explicit(&t->ready, memory_order_acquire);
}

/* The worker's own look at what it stored. */
static inline bool
mr__tier1_has_code(const mr_tier1 *t)
{
    /* relaxed: by the thread that stores it */
    return atomic_load_explicit(&t->ready, memory_order_relaxed) != NULL;
}

/* ---- jit.c -----------------------------------------------------------------
 */

/* Gives the worker a reference and the work: quick code, or the best.  Never
 * waits, never fails. */
void mr__jit_submit(mr_tier1 *t, bool quick);
/* Has the worker load the provider, which takes as long as a compilation: there
 * will be work soon.  Never waits, never fails. */
void mr__jit_prepare(void);
/* Waits until all that was submitted is done. */
void mr__jit_wait(void);
void mr__jit_code_release(mr_jit_code **used, int n);
/* Tests: a provider in place of the one in the shared object (NULL: that one
 * again), and the mode.  Nothing may be running; cached code is dropped. */
struct mr_jit_table;
void mr__jit_use(const struct mr_jit_table *provider, mr_jit_mode mode);

#endif
