/* SPDX-License-Identifier: Apache-2.0
 *
 * flights.c -- all interleavings of a stream with a queue.
 *
 * Beside model.c, for what a device with queues adds to src/eval/stream.c: the
 * drainer pops a task under the stream's lock, which makes it fly, and puts it
 * into the queue under none; the provider's thread ends it, and takes it out of
 * the flying ones under the lock.  Task 0 and 2 are launched, task 1 runs on
 * the host; task 2 waits for a producer on another stream.  One thread helps,
 * one worker drains when it is given the stream, one waits for all that was
 * entered before task 1 (mr_stream_sync), and the stream is freed at some time.
 *
 * What must hold: a task ends once, and lands while the stream is there; the
 * stream ends once, with nothing queued or flying; who syncs comes back when
 * task 0 is done, and not before; nothing is left undone.
 *
 * Each rule that can be turned off must be needed.
 */
#include "search.h"

enum { TASKS = 3, HOST_TASK = 1, WAITING_TASK = 2, SYNC_TARGET = 1 };

typedef enum rule {
    RULE_ALL,
    RULE_FLY_FIRST,  /* a task flies before it is in the queue */
    RULE_FLYING_IS,  /* a stream with flying tasks is not over */
    RULE_SYNC_LOOKS, /* who syncs looks at the oldest that flies */
    RULE_KICK        /* who ends the last producer gives the stream away */
} rule;

/* Where a drainer stands. */
enum { D_CLAIM, D_NEXT, D_LAUNCH, D_FLY, D_RUN, D_COUNT, D_END };

typedef struct drainer {
    uint8_t pc, task;
} drainer;

typedef struct state {
    drainer d[2];   /* 0: the thread that helps, 1: the worker */
    uint8_t popped; /* how many: tasks leave the queue of the stream in order */
    uint8_t busy, dying, gone, n_done, jobs;
    uint8_t flying, queued, ended; /* a bit for each task */
    uint8_t produced, synced, landing;
} state;

static rule without;

static bool
head_can_run(const state *s)
{
    return s->popped < TASKS && (s->popped != WAITING_TASK || s->produced);
}

/* Under the stream's lock, like all that calls it. */
static void
end_if_over(state *s)
{
    if (!s->dying || s->busy || s->popped < TASKS ||
        (s->flying != 0 && without != RULE_FLYING_IS))
        return;
    must(!s->gone, "the stream ends twice");
    must(s->flying == 0, "the stream ends while a task flies");
    s->gone = 1;
}

static void
task_ends(state *s, int t)
{
    must(!(s->ended & 1 << t), "a task ends twice");
    s->ended |= (uint8_t)(1 << t);
}

static bool
drainer_next(state *s, drainer *d)
{
    if (!head_can_run(s)) {
        s->busy = 0;
        end_if_over(s);
        d->pc = d == &s->d[1] ? D_CLAIM : D_END;
        return true;
    }
    d->task = s->popped++;
    d->pc = d->task == HOST_TASK ? D_RUN : D_LAUNCH;
    if (d->task != HOST_TASK && without != RULE_FLY_FIRST)
        s->flying |= (uint8_t)(1 << d->task);
    return true;
}

static bool
drainer_move(state *s, int who)
{
    drainer *d = &s->d[who];

    switch (d->pc) {
    case D_CLAIM: /* the worker's claim was made by who gave it the job */
        if (who == 1 && s->jobs == 0)
            return false;
        if (who == 1)
            s->jobs--;
        else if (s->busy || s->gone || !head_can_run(s))
            d->pc = D_END;
        else
            s->busy = 1;
        if (d->pc != D_END)
            d->pc = D_NEXT;
        return true;
    case D_NEXT:
        return drainer_next(s, d);
    case D_LAUNCH:
        s->queued |= (uint8_t)(1 << d->task);
        d->pc = without == RULE_FLY_FIRST ? D_FLY : D_NEXT;
        return true;
    case D_FLY:
        s->flying |= (uint8_t)(1 << d->task);
        d->pc = D_NEXT;
        return true;
    case D_RUN:
        task_ends(s, d->task);
        d->pc = D_COUNT;
        return true;
    case D_COUNT:
        s->n_done++;
        d->pc = D_NEXT;
        return true;
    default:
        return false;
    }
}

/* The provider's thread: the oldest of its queue ends, then lands. */
static bool
provider_move(state *s)
{
    int t;

    if (s->landing != 0) {
        t = s->landing - 1;
        s->landing = 0;
        must(!s->gone, "a task lands on a stream that is gone");
        must(s->flying & 1 << t, "a task lands that does not fly");
        s->flying &= (uint8_t) ~(1 << t);
        s->n_done++;
        end_if_over(s);
        return true;
    }
    if (s->queued == 0)
        return false;
    t = s->queued & 1 ? 0 : WAITING_TASK;
    s->queued &= (uint8_t) ~(1 << t);
    task_ends(s, t);
    s->landing = (uint8_t)(t + 1);
    return true;
}

/* mr__stream_kick: claims the stream for the worker, or leaves it alone. */
static void
kick(state *s)
{
    if (s->busy || s->gone || !head_can_run(s))
        return;
    s->busy = 1;
    s->jobs++;
}

static bool
producer_move(state *s)
{
    if (s->produced)
        return false;
    s->produced = 1;
    if (without != RULE_KICK)
        kick(s);
    return true;
}

static bool
sync_move(state *s)
{
    bool early = s->flying & 1; /* the oldest has a number below the target */

    if (s->synced || (!s->gone && s->n_done < SYNC_TARGET) ||
        (!s->gone && early && without != RULE_SYNC_LOOKS))
        return false;
    must(s->ended & 1, "a sync comes back before the task");
    s->synced = 1;
    return true;
}

static bool
free_move(state *s)
{
    if (s->dying)
        return false;
    s->dying = 1;
    end_if_over(s);
    return true;
}

enum { MOVES = 6 };

static bool
move(void *state_, int m)
{
    state *s = state_;

    switch (m) {
    case 0:
    case 1:
        return drainer_move(s, m);
    case 2:
        return provider_move(s);
    case 3:
        return producer_move(s);
    case 4:
        return sync_move(s);
    default:
        return free_move(s);
    }
}

static void
check_end(const void *state_)
{
    const state *s = state_;

    must(s->ended == (1 << TASKS) - 1, "a task is never run");
    must(s->n_done == TASKS, "a task is never counted");
    must(s->synced, "a sync never comes back");
    must(s->gone, "the stream never ends");
}

static const char *
explore(rule off, size_t *n)
{
    state start = {0};
    search h = {.bytes = sizeof(state),
                .n_moves = MOVES,
                .move = move,
                .check_end = check_end};

    without = off;
    broken = NULL;
    search_all(&h, &start, 1 << 20);
    *n = h.n_seen;
    search_free(&h);
    return broken;
}

static void
flights__keep_their_promises(void **state_)
{
    size_t n;
    const char *what = explore(RULE_ALL, &n);

    (void)state_;
    if (what != NULL)
        fail_msg("%s", what);
    print_message("  %zu states\n", n);
    assert_true(n > 200);
}

static void
flights__need_each_rule(void **state_)
{
    static const rule rules[] = {RULE_FLY_FIRST, RULE_FLYING_IS,
                                 RULE_SYNC_LOOKS, RULE_KICK};
    size_t n;

    (void)state_;
    for (size_t i = 0; i < MRT_COUNT(rules); i++) {
        const char *what = explore(rules[i], &n);

        assert_non_null(what);
        print_message("  without rule %d: %s\n", (int)rules[i], what);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flights__keep_their_promises),
        cmocka_unit_test(flights__need_each_rule),
    };

    return cmocka_run_group_tests_name("eval/flights", tests, NULL, NULL);
}
