/* SPDX-License-Identifier: Apache-2.0
 *
 * takes.c -- all interleavings of results that are computed alone.
 *
 * Beside model.c, for src/eval/alone.c.  A call has two results, 0 and 1; a
 * node z reads result 0.  Actors evaluate a result, each first alone and, when
 * that is not to be, under the plan lock, or they evaluate z, under the plan
 * lock.  A step is one atomic operation, or what happens between two of them;
 * who has submitted something runs it too.
 *
 * What must hold: inputs are read only while they are there; the call is
 * computed once, unless it was given up, and what nobody can reach is not
 * touched; memory is looked at only when it is said; a result that a planner
 * has seen as new is new when it is submitted; all actors come back, with what
 * they asked for done, or failed where the data does not allow that result.
 *
 * Each rule that can be turned off must be needed.
 */
#include "search.h"

enum { RESULTS = 2, ACTORS = 3, NOBODY = 255, WANTS_Z = 2 };

typedef enum rule {
    RULE_ALL,
    RULE_FORBID,      /* a planner marks what it sees as new */
    RULE_FORBID_SEES, /* in the step in which it sees that */
    RULE_STEP_BACK,   /* a planner waits for what is taken, without the lock */
    RULE_EMIT_LOOKS,  /* it looks again before it emits a reader */
    RULE_COMPARE,     /* taking compares and exchanges at once */
    RULE_SOLE,        /* the roots are all that reach the call */
    RULE_CALL_IS_NEW, /* the call may be computed already */
    RULE_WAKE         /* giving back wakes who waits */
} rule;

enum { S_NEW, S_SUBMITTED, S_DONE, S_FAILED };

typedef struct result {
    uint8_t state, planned, alone, waited;
    uint8_t has_input; /* its edge to the call */
    uint8_t said;      /* its memory */
} result;

/* Where an actor stands. */
enum {
    P_TAKE, /* alone: */
    P_TAKE_LATE,
    P_LOOK,
    P_RUN,
    P_STORE,
    P_DETACH,
    P_GIVE,
    P_WAKE,
    P_CHECK, /* planned: */
    P_LOCK,
    P_FORBID,
    P_STATE,
    P_IS_TAKEN,
    P_READ,
    P_EMIT,
    P_SUBMIT,
    P_UNLOCK,
    P_KERNEL,
    P_CALL_DONE,
    P_FINISH,
    P_LATER_DETACH,
    P_Z,
    P_SLEEP,
    P_ASLEEP,
    P_END
};

typedef struct actor {
    uint8_t pc, wants; /* a result, or WANTS_Z */
    uint8_t after;     /* where to go on when woken, or awake */
    uint8_t mine;      /* its window has the call, bit 0, and its result, 1 */
    uint8_t woken;
} actor;

typedef struct state {
    result r[RESULTS];
    uint8_t call, computed, call_has_inputs, n_edges;
    uint8_t z, lock, give_ups, gave_up;
    actor a[ACTORS];
} state;

static rule without;
static uint8_t bad; /* the result that the call's data does not allow, NOBODY */

static result *
result_of(state *s, const actor *a)
{
    return &s->r[a->wants == WANTS_Z ? 0 : a->wants];
}

static bool
is_bad(const state *s, const result *r)
{
    return bad != NOBODY && r == &s->r[bad];
}

/* ---- alone -------------------------------------------------------------- */

static void
take(result *r, actor *a)
{
    r->state = S_SUBMITTED;
    r->alone = 1;
    a->pc = P_LOOK;
}

static bool
take_move(result *r, actor *a)
{
    if (r->state != S_NEW || r->planned)
        a->pc = P_CHECK;
    else if (without == RULE_COMPARE)
        a->pc = P_TAKE_LATE;
    else
        take(r, a);
    return true;
}

/* The edge, who else has one, and the call. */
static bool
look_move(state *s, const result *r, actor *a)
{
    must(r->has_input, "who computes alone finds no input");
    a->pc = P_RUN;
    if ((s->n_edges != 1 && without != RULE_SOLE) ||
        (s->call != S_NEW && without != RULE_CALL_IS_NEW))
        a->pc = P_GIVE;
    return true;
}

static bool
run_move(state *s, actor *a, int choice)
{
    if (choice == 1) {
        if (s->give_ups == 0)
            return false;
        s->give_ups--;
        a->pc = P_GIVE;
        return true;
    }
    must(s->call_has_inputs, "a program reads arguments that are gone");
    must(s->computed == 0, "a call is computed twice");
    s->computed = 1;
    a->pc = P_STORE;
    return true;
}

/* The exchange that ends it; who waits is woken in a step of its own. */
static void
leave(result *r, actor *a, uint8_t to, uint8_t after)
{
    must(r->state == S_SUBMITTED, "a result leaves a state that is final");
    r->state = to;
    r->planned = r->alone = 0;
    a->woken = r->waited && without != RULE_WAKE;
    r->waited = 0;
    a->after = after;
    a->pc = P_WAKE;
}

static bool
wake_move(state *s, actor *a)
{
    for (int i = 0; a->woken && i < ACTORS; i++)
        if (s->a[i].pc == P_ASLEEP && result_of(s, &s->a[i]) == result_of(s, a))
            s->a[i].pc = P_SLEEP;
    a->woken = 0;
    a->pc = a->after;
    return true;
}

static void
drop_edge(state *s, result *r)
{
    if (!r->has_input)
        return;
    r->has_input = 0;
    s->n_edges--;
    if (s->n_edges == 0)
        s->call_has_inputs = 0;
}

static bool
alone_move(state *s, actor *a, int choice)
{
    result *r = result_of(s, a);

    if (a->pc == P_RUN)
        return run_move(s, a, choice);
    if (choice == 1)
        return false;
    switch (a->pc) {
    case P_TAKE:
        return take_move(r, a);
    case P_TAKE_LATE:
        take(r, a);
        return true;
    case P_LOOK:
        return look_move(s, r, a);
    case P_STORE: /* one that fails gets no memory, and keeps its edge */
        if (is_bad(s, r)) {
            leave(r, a, S_FAILED, P_CHECK);
            return true;
        }
        r->said = 1;
        leave(r, a, S_DONE, P_DETACH);
        return true;
    case P_DETACH:
        drop_edge(s, r);
        a->pc = P_CHECK;
        return true;
    default: /* P_GIVE */
        leave(r, a, S_NEW, P_CHECK);
        return true;
    }
}

/* ---- planned ------------------------------------------------------------ */

/* What z reads has failed: z does so at once. */
static void
fail_z(state *s, actor *a)
{
    must(is_bad(s, &s->r[0]), "z fails without a reason");
    s->z = S_FAILED;
    a->pc = P_UNLOCK;
}

/* Of the result that is asked for, or that z reads. */
static bool
state_move(state *s, const result *r, actor *a)
{
    if (r->state == S_NEW)
        a->pc = P_READ;
    else if (r->state == S_FAILED && a->wants == WANTS_Z)
        fail_z(s, a);
    else if (a->wants != WANTS_Z)
        a->pc = P_UNLOCK; /* waits for it */
    else
        a->pc = P_IS_TAKEN;
    return true;
}

static bool
is_taken_move(const result *r, actor *a)
{
    bool back = r->alone && without != RULE_STEP_BACK;

    a->pc = back ? P_UNLOCK : P_EMIT;
    return true;
}

/* The walk goes on to the call. */
static bool
read_move(const state *s, const result *r, actor *a)
{
    must(r->has_input, "a planner reads inputs that are gone");
    a->mine = (uint8_t)(2 | (s->call == S_NEW));
    a->pc = a->wants == WANTS_Z ? P_EMIT : P_SUBMIT;
    return true;
}

static bool
emit_move(state *s, const result *r, actor *a)
{
    bool taken = r->alone && without != RULE_STEP_BACK;
    bool placed = (a->mine & 2) || (r->state != S_NEW && !taken);

    if (r->state == S_FAILED)
        fail_z(s, a);
    else
        a->pc = placed || without == RULE_EMIT_LOOKS ? P_SUBMIT : P_FORBID;
    return true;
}

static bool
submit_move(state *s, result *r, actor *a)
{
    if (a->mine & 2) {
        must(r->state == S_NEW, "a result was taken while it was planned");
        r->state = S_SUBMITTED;
        r->said = 1;
    }
    must(r->said, "memory is looked at before it is said");
    if (a->mine & 1) {
        must(s->call == S_NEW, "a call was computed while it was planned");
        s->call = S_SUBMITTED;
    }
    if (a->wants == WANTS_Z)
        s->z = S_SUBMITTED;
    a->pc = P_UNLOCK;
    return true;
}

static bool
unlock_move(state *s, actor *a)
{
    s->lock = NOBODY;
    if (a->mine & 1)
        a->pc = P_KERNEL;
    else if (a->mine & 2)
        a->pc = P_FINISH;
    else if (a->wants == WANTS_Z && s->z == S_SUBMITTED)
        a->pc = P_Z;
    else
        a->pc = P_SLEEP;
    return true;
}

static bool
kernel_move(state *s, actor *a)
{
    must(s->call_has_inputs, "a program reads arguments that are gone");
    must(s->computed == 0, "a call is computed twice");
    s->computed = 1;
    a->pc = P_CALL_DONE;
    return true;
}

static bool
finish_move(state *s, result *r, actor *a)
{
    if (s->call != S_DONE) /* a window before made it: its task is waited for */
        return false;
    if (is_bad(s, r)) /* the call says so, result by result */
        leave(r, a, S_FAILED, a->wants == WANTS_Z ? P_Z : P_CHECK);
    else
        leave(r, a, S_DONE, P_LATER_DETACH);
    return true;
}

static bool
z_move(state *s, const result *r, actor *a)
{
    if (r->state == S_SUBMITTED)
        return false;
    must(r->state == S_DONE || is_bad(s, r), "z reads what is not computed");
    s->z = r->state;
    a->pc = P_END;
    return true;
}

/* The parking lot; awake, all is looked at again. */
static bool
sleep_move(result *r, actor *a)
{
    if (r->state == S_SUBMITTED) {
        r->waited = 1;
        a->pc = P_ASLEEP;
    } else {
        a->pc = P_CHECK;
    }
    return true;
}

static bool
check_move(const state *s, const result *r, actor *a)
{
    uint8_t now = a->wants == WANTS_Z ? s->z : r->state;
    bool done = now == S_DONE || now == S_FAILED;

    a->mine = 0;
    a->pc = done ? P_END : P_LOCK;
    return true;
}

static bool
lock_move(state *s, actor *a, int who)
{
    if (s->lock != NOBODY)
        return false;
    s->lock = (uint8_t)who;
    a->pc = P_FORBID;
    return true;
}

static bool
walk_move(state *s, actor *a, result *r)
{
    switch (a->pc) {
    case P_FORBID:
        if (r->state == S_NEW && without != RULE_FORBID)
            r->planned = 1;
        a->pc = P_STATE;
        return without == RULE_FORBID_SEES || state_move(s, r, a);
    case P_STATE:
        return state_move(s, r, a);
    case P_IS_TAKEN:
        return is_taken_move(r, a);
    case P_READ:
        return read_move(s, r, a);
    case P_EMIT:
        return emit_move(s, r, a);
    case P_SUBMIT:
        return submit_move(s, r, a);
    default:
        return unlock_move(s, a);
    }
}

static bool
planned_move(state *s, actor *a, int who)
{
    result *r = result_of(s, a);

    switch (a->pc) {
    case P_CHECK:
        return check_move(s, r, a);
    case P_LOCK:
        return lock_move(s, a, who);
    case P_KERNEL:
        return kernel_move(s, a);
    case P_CALL_DONE:
        s->call = S_DONE;
        s->call_has_inputs = 0;
        a->pc = P_FINISH;
        return true;
    case P_FINISH:
        return finish_move(s, r, a);
    case P_LATER_DETACH:
        drop_edge(s, r);
        a->pc = a->wants == WANTS_Z ? P_Z : P_CHECK;
        return true;
    case P_Z:
        return z_move(s, r, a);
    case P_SLEEP:
        return sleep_move(r, a);
    default:
        return walk_move(s, a, r);
    }
}

/* ---- the search --------------------------------------------------------- */

static bool
move(void *state_, int m)
{
    state *s = state_;
    actor *a = &s->a[m / 2];
    int choice = m % 2;

    if (a->pc <= P_GIVE)
        return alone_move(s, a, choice);
    if (choice == 1 || a->pc == P_ASLEEP || a->pc == P_END)
        return false;
    return a->pc == P_WAKE ? wake_move(s, a) : planned_move(s, a, m / 2);
}

static void
check_end(const void *state_)
{
    const state *s = state_;

    for (int i = 0; i < ACTORS; i++)
        must(s->a[i].pc == P_END, "an evaluation never comes back");
    must(s->computed == 1, "a call is never computed");
    for (int i = 0; i < RESULTS; i++)
        must((s->r[i].state != S_FAILED || i == bad) &&
                 (s->r[i].state != S_DONE || i != bad),
             "a result has another's end");
    must(s->z != S_DONE || bad != 0, "z is done without its input");
}

/* Who wants what: results 0 and 1, or z.  `edges`: how many results there are.
 */
typedef struct world {
    uint8_t wants[ACTORS], edges, give_ups, bad;
} world;

static const world worlds[] = {
    {{0, 0, WANTS_Z}, 1, 0, NOBODY},
    {{0, 0, WANTS_Z}, 1, 2, NOBODY},
    {{0, WANTS_Z, WANTS_Z}, 1, 1, NOBODY},
    {{0, 1, WANTS_Z}, 2, 1, NOBODY},
    {{0, 1, 1}, 2, 1, NOBODY},
    {{0, 0, 0}, 1, 2, NOBODY},
    {{0, 0, WANTS_Z}, 1, 2, 0},
    {{0, WANTS_Z, WANTS_Z}, 1, 1, 0},
    {{0, 1, WANTS_Z}, 2, 1, 0},
    {{0, 1, WANTS_Z}, 2, 1, 1},
    {{0, 1, 1}, 2, 1, 1},
};

static const char *
explore(size_t which, int off, size_t *n)
{
    const world *w = &worlds[which];
    state start;
    search h = {.bytes = sizeof(state),
                .n_moves = 2 * ACTORS,
                .move = move,
                .check_end = check_end};

    memset(&start, 0, sizeof start);
    start.lock = NOBODY;
    start.call_has_inputs = 1;
    start.n_edges = w->edges;
    start.give_ups = w->give_ups;
    for (int i = 0; i < w->edges; i++)
        start.r[i].has_input = 1;
    for (int i = 0; i < ACTORS; i++) {
        start.a[i].wants = w->wants[i];
        start.a[i].pc = w->wants[i] == WANTS_Z ? P_CHECK : P_TAKE;
    }
    without = (rule)off;
    bad = w->bad;
    broken = NULL;
    search_all(&h, &start, 1 << 22);
    *n += h.n_seen;
    search_free(&h);
    return broken;
}

static void
takes__keep_their_promises(void **state_)
{
    (void)state_;
    search_all_hold(explore, MRT_COUNT(worlds), 1000);
}

static void
takes__need_each_rule(void **state_)
{
    (void)state_;
    search_rules_are_needed(explore, MRT_COUNT(worlds), RULE_WAKE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes__keep_their_promises),
        cmocka_unit_test(takes__need_each_rule),
    };

    return cmocka_run_group_tests_name("eval/takes", tests, NULL, NULL);
}
