/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c -- all interleavings of the protocol of src/eval/README.md.
 *
 * A small explicit-state model checker.  A world is a graph, evaluators that
 * ask for roots, and streams; its actors are the evaluators' threads and one
 * worker for each stream.  An actor's step is one thing that happens under one
 * lock, or one atomic operation, of src/eval.  All orders of steps and all
 * choices (memory refused, a kernel that gives up) are tried.
 *
 * What must hold: the walker reads inputs of nodes that still have them; a
 * kernel reads only memory that its producers have filled; nothing leaves
 * `done` or `failed`; without failures each node is computed once; when
 * nothing can move, every evaluator has come back, with its roots done or with
 * an error, and nothing is left in a queue; those nodes fail that depend on the
 * kernel that does, and no others.
 *
 * Each rule that can be turned off (enum rule) must be needed: a test turns it
 * off and expects the checker to find out.
 */
#include <string.h>

#include "model_evaluator.h"
#include "support/base.h"

/* Sanitizers slow it down and have nothing to find in it. */
#if MRT_TSAN || defined(__SANITIZE_ADDRESS__)
enum { STATES_MAX = 60000, MUST_END = 0 };
#else
enum { STATES_MAX = 1 << 23, MUST_END = 1 };
#endif

/* ---- what must hold at the end ------------------------------------------ */

static void
check_end(const void *of)
{
    const state *s = of;

    for (int k = 0; k < wd->n_evals; k++) {
        bool done = true;

        must(s->e[k].pc == E_END_OK || s->e[k].pc == E_END_ERROR,
             "an evaluator waits for ever");
        for (int r = 0; r < wd->eval[k].n_roots; r++)
            done = done && s->n[wd->eval[k].root[r]].state == S_DONE;
        must(done || s->e[k].pc == E_END_ERROR,
             "an evaluator came back without its roots");
        must(s->e[k].pc != E_END_ERROR || s->failed ||
                 s->refusals < wd->refusals,
             "an evaluator got an error though nothing failed");
    }
    for (int k = 0; k < wd->n_streams; k++) {
        must(s->s[k].head == NOBODY, "tasks are left in a stream");
        must(!s->s[k].busy, "a stream is busy for ever");
    }
    must(s->lock == NOBODY, "the plan lock is held for ever");
    for (int i = 0; i < wd->n_nodes; i++)
        must(s->n[i].state != S_SUBMITTED, "a node stays submitted");
}

/* ---- the search --------------------------------------------------------- */

/* Move 2 * a + c: actor a's step, with choice c. */
static bool
step(void *of, int move)
{
    state *s = of;
    int actor = move / 2, choice = move % 2;

    if (actor < wd->n_evals)
        return eval_step(s, actor, choice);
    return drain_step(s, &s->w[actor - wd->n_evals], choice);
}

static void
print_path(const search *h)
{
    print_message("%s: %s\n", wd->name, broken);
    for (size_t i = 0; i < h->depth; i++) {
        state s;

        memcpy(&s, search_at(h, i), sizeof s);
        print_message("%3zu: actor %d", i, (h->next[i] - 1) / 2);
        for (int k = 0; k < wd->n_evals; k++)
            print_message("  e%d pc=%d x=%d", k, s.e[k].pc, s.e[k].x.pc);
        for (int k = 0; k < wd->n_streams; k++)
            print_message("  s%d busy=%d w=%d", k, s.s[k].busy, s.w[k].pc);
        print_message("\n");
    }
}

static void
set_start(state *s)
{
    memset(s, 0, sizeof *s);
    s->n[0].state = S_DONE;
    s->n[0].valid = 1;
    s->lock = NOBODY;
    s->refusals = (uint8_t)wd->refusals;
    s->give_ups = (uint8_t)wd->give_ups;
    for (int k = 0; k < STREAMS; k++)
        s->s[k].head = s->s[k].tail = NOBODY;
}

/* What does not hold, or NULL; *n_states: how many were looked at. */
static const char *
explore(const world *w, rule without, size_t *n_states)
{
    search h = {.bytes = sizeof(state),
                .n_moves = 2 * (w->n_evals + w->n_streams),
                .move = step,
                .check_end = check_end};
    state s;

    wd = w;
    off = without;
    broken = NULL;
    set_start(&s);
    search_all(&h, &s, STATES_MAX);
    if (broken != NULL && without == RULE_ALL)
        print_path(&h);
    if (without == RULE_ALL)
        print_message("  %-48s %8zu states\n", w->name, h.n_seen);
    assert_true(h.n_seen < STATES_MAX || !MUST_END);
    *n_states = h.n_seen;
    search_free(&h);
    return broken;
}

/* ---- the protocol as it is ---------------------------------------------- */

/* clang-format off */
#define DATA           {0}
#define OP1(a)         {1, {a}, .root = NOBODY, .held = true, .stream = -1}
#define OP2(a, b)      {2, {a, b}, .root = NOBODY, .held = true, .stream = -1}
#define OP1_ON(a, s)   {1, {a}, .root = NOBODY, .held = true, .stream = (s)}
#define VIEW(a)        {1, {a}, true, NOBODY, true, -1}
#define FUSED(a, r, h) {1, {a}, .root = (r), .held = (h), .stream = -1}

#define CHAIN {DATA, OP1(0), OP1(1), OP1(2), OP1(3)}
#define DIAMOND_ON_TWO {DATA, OP1(0), OP1_ON(1, 1), OP1_ON(1, 0), OP2(2, 3)}
#define TWO_TOPS {DATA, OP1(0), OP1(1), OP1(2), OP1(2)}
#define GROUP {DATA, OP1(0), FUSED(1, 4, true), FUSED(2, 4, false), OP1(3)}
#define PARTS {DATA, FUSED(0, 3, true), FUSED(1, 3, true), OP1(1), OP1_ON(2, 1)}
#define VIEWS {DATA, OP1(0), VIEW(1), OP1(2), VIEW(1)}

static const world plain[] = {
    {"chain of 4, 2 evaluators, one stream", 5, CHAIN, 2,
     {{1, {4}, 0}, {1, {4}, 0}}, 1, 8, -1, 0, 0},
    {"chain of 4, 2 evaluators, two streams", 5, CHAIN, 2,
     {{1, {4}, 0}, {1, {3}, 1}}, 2, 8, -1, 0, 0},
    {"chain of 4 in windows of 1, two streams", 5, CHAIN, 2,
     {{1, {4}, 0}, {1, {4}, 1}}, 2, 1, -1, 0, 0},
    {"chain of 3, 3 evaluators, two streams", 4, CHAIN, 3,
     {{1, {3}, 0}, {1, {2}, 1}, {1, {3}, 1}}, 2, 8, -1, 0, 0},
    {"diamond over two streams, 2 evaluators", 5, DIAMOND_ON_TWO, 2,
     {{1, {4}, 0}, {1, {4}, 1}}, 2, 2, -1, 0, 0},
    {"two overlapping roots, two streams", 5, TWO_TOPS, 2,
     {{2, {3, 4}, 0}, {2, {4, 3}, 1}}, 2, 2, -1, 0, 0},
    {"two overlapping roots, 3 evaluators, one stream", 5, TWO_TOPS, 3,
     {{1, {3}, 0}, {1, {4}, 0}, {1, {2}, 0}}, 1, 8, -1, 0, 0},
    {"a fused group with a visible interior", 5, GROUP, 2,
     {{1, {4}, 0}, {1, {2}, 1}}, 2, 8, -1, 0, 0},
    {"a fused group, its hidden interior asked for", 5, GROUP, 3,
     {{1, {4}, 0}, {1, {3}, 1}, {1, {2}, 0}}, 2, 8, -1, 0, 0},
    {"a view of a submitted node", 5, VIEWS, 2,
     {{1, {3}, 0}, {1, {4}, 1}}, 2, 8, -1, 0, 0},
    {"views, 3 evaluators, windows of 1", 5, VIEWS, 3,
     {{1, {2}, 0}, {1, {4}, 1}, {1, {1}, 0}}, 2, 1, -1, 0, 0},
    {"root elsewhere, producers on our stream", 4,
     {DATA, OP1(0), OP1_ON(1, 1), OP1_ON(2, 1)}, 2,
     {{1, {3}, 0}, {1, {2}, 1}}, 2, 8, -1, 0, 0},
    {"producers elsewhere", 4, {DATA, OP1_ON(0, 1), OP1(1), OP1(2)}, 2,
     {{1, {3}, 0}, {1, {1}, 0}}, 2, 8, -1, 0, 0},
};

static const world failing[] = {
    {"data failure in a chain", 5, CHAIN, 2,
     {{1, {4}, 0}, {1, {3}, 1}}, 2, 2, 2, 0, 0},
    {"data failure, 3 evaluators", 4, CHAIN, 3,
     {{1, {3}, 0}, {1, {2}, 1}, {1, {1}, 1}}, 2, 8, 2, 0, 0},
    {"data failure in one arm of a diamond", 5, DIAMOND_ON_TWO, 2,
     {{1, {4}, 0}, {2, {2, 3}, 1}}, 2, 8, 2, 0, 0},
    {"data failure under a view", 5, VIEWS, 2,
     {{1, {3}, 0}, {1, {4}, 1}}, 2, 8, 1, 0, 0},
    {"data failure of a group's hidden interior", 5, GROUP, 2,
     {{1, {4}, 0}, {1, {2}, 1}}, 2, 8, 3, 0, 0},
    {"data failure in one part of a group", 5, PARTS, 3,
     {{1, {3}, 0}, {1, {4}, 1}, {2, {2, 1}, 0}}, 2, 8, 2, 0, 0},
    {"data failure above one part of a group", 5,
     {DATA, OP1_ON(0, 1), FUSED(0, 3, true), OP2(1, 2), OP1(2)}, 2,
     {{2, {3, 4}, 0}, {2, {2, 3}, 1}}, 2, 8, 1, 0, 0},
    {"and the kernel gives up", 5, PARTS, 2,
     {{2, {3, 4}, 0}, {1, {4}, 1}}, 2, 2, 2, 1, 0},
    {"no memory for a plan, once", 5, DIAMOND_ON_TWO, 2,
     {{1, {4}, 0}, {1, {4}, 1}}, 2, 2, -1, 0, 1},
    {"no memory for a plan, twice, 3 evaluators", 4, CHAIN, 3,
     {{1, {3}, 0}, {1, {2}, 0}, {1, {3}, 0}}, 1, 8, -1, 0, 2},
    {"a kernel gives up", 4, CHAIN, 2,
     {{1, {3}, 0}, {1, {3}, 1}}, 2, 8, -1, 1, 0},
    {"a kernel gives up, windows of 1", 4, CHAIN, 2,
     {{1, {3}, 0}, {1, {1}, 1}}, 2, 1, -1, 1, 0},
    {"two kernels give up, diamond", 5, DIAMOND_ON_TWO, 1,
     {{1, {4}, 0}}, 2, 8, -1, 2, 0},
    {"a kernel under views gives up", 5, VIEWS, 2,
     {{1, {3}, 0}, {1, {4}, 1}}, 2, 8, -1, 1, 0},
    {"a fused group gives up", 5, GROUP, 2,
     {{1, {4}, 0}, {1, {2}, 1}}, 2, 8, -1, 1, 0},
    {"everything at once", 4, {DATA, OP1(0), OP1_ON(1, 1), OP1(2)}, 2,
     {{1, {3}, 0}, {1, {1}, 0}}, 2, 8, 3, 1, 1},
};
/* clang-format on */

static void
protocol__holds_in_every_order(void **unused)
{
    size_t n;

    (void)unused;
    for (size_t i = 0; i < MRT_COUNT(plain); i++)
        assert_null(explore(&plain[i], RULE_ALL, &n));
}

static void
protocol__holds_when_things_fail(void **unused)
{
    size_t n;

    (void)unused;
    for (size_t i = 0; i < MRT_COUNT(failing); i++)
        assert_null(explore(&failing[i], RULE_ALL, &n));
}

/* ---- each rule is needed ------------------------------------------------ */

/* Some world must break without it. */
static void
needs(rule without, const char *what)
{
    for (size_t i = 0; i < MRT_COUNT(plain) + MRT_COUNT(failing); i++) {
        const world *w =
            i < MRT_COUNT(plain) ? &plain[i] : &failing[i - MRT_COUNT(plain)];
        size_t n;
        const char *found = explore(w, without, &n);

        if (found == NULL)
            continue;
        print_message("  without it: %s (%s, after %zu states)\n", found,
                      w->name, n);
        if (what != NULL)
            assert_string_equal(found, what);
        return;
    }
    fail_msg("the checker does not find out");
}

static struct needed {
    const char *test;
    rule rule;
    const char *found; /* what goes wrong without it, or NULL: anything */
} needed[] = {
    {"entering_in_order__is_needed", RULE_ENTER_UNDER_LOCK,
     "a task runs before its producers"},
    {"looking_at_waited__is_needed", RULE_WAKE, "an evaluator waits for ever"},
    {"looking_at_the_head_when_leaving__is_needed", RULE_LEAVE_LOOKS, NULL},
    {"detaching_after_done__is_needed", RULE_DONE_THEN_DETACH,
     "the walker reads detached inputs"},
    {"walking_again__is_needed", RULE_WALK_AGAIN,
     "a leaf of the plan has no memory"},
    {"looking_at_leaves_that_fail__is_needed", RULE_FAILED_LEAF,
     "a kernel reads what is not computed"},
    {"comparing_memory__is_needed", RULE_SAME_MEMORY,
     "a kernel reads what is not computed"},
    {"kicking_other_streams__is_needed", RULE_KICK_OTHERS,
     "an evaluator waits for ever"},
    {"helping_the_own_stream__is_needed", RULE_HELP_OWN,
     "an evaluator waits for ever"},
    {"giving_up_under_the_plan_lock__is_needed", RULE_WAIT_FOR_LOCK, NULL},
    {"asking_for_each_result__is_needed", RULE_EACH_RESULT,
     "a node fails that depends on no failure"},
    {"running_without_what_lacks__is_needed", RULE_WITHOUT,
     "a kernel reads what is not computed"},
};

static void
rule__is_needed(void **which)
{
    const struct needed *n = *which;

    needs(n->rule, n->found);
}

int
main(void)
{
    struct CMUnitTest tests[2 + MRT_COUNT(needed)] = {
        cmocka_unit_test(protocol__holds_in_every_order),
        cmocka_unit_test(protocol__holds_when_things_fail),
    };
    for (size_t i = 0; i < MRT_COUNT(needed); i++)
        tests[2 + i] = (struct CMUnitTest){needed[i].test, rule__is_needed,
                                           NULL, NULL, &needed[i]};
    return cmocka_run_group_tests_name("eval/model", tests, NULL, NULL);
}
