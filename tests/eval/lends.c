/* SPDX-License-Identifier: Apache-2.0
 *
 * lends.c -- all interleavings of references that are noted, not counted.
 *
 * Beside model.c, for src/graph/lend.c.  One array; holders who have a counted
 * reference of it, or get one from the edge of a node, and may call a function
 * with it: the array is lent to the call's node, which they publish.  They drop
 * their reference; nodes read the array and end, at any time.  A donor writes
 * over the array if it may.  A step is one atomic operation.
 *
 * What must hold: nobody touches an array that is gone; it goes once, and in
 * the end it is gone; nobody writes over it while another can read it.
 *
 * Each rule that can be turned off must be needed.
 */
#include "search.h"

enum { SLOTS = 3, HOLDERS = 3, ACTORS = HOLDERS + SLOTS, NOBODY = 255 };

typedef enum rule {
    RULE_ALL,
    RULE_FLAG_IN_COUNT, /* who drops sees the flag in the same step */
    RULE_NOTE_FIRST,    /* a caller's reference goes after the note is there */
    RULE_SCAN,          /* the last reference asks who is noted */
    RULE_LOOK_AGAIN,    /* after the scan the count is looked at again */
    RULE_ASKED,         /* and must be as it was, not only one */
    RULE_ASKED_GOES,    /* dropping takes the mark away */
    RULE_GIVE_COMPARES, /* a reference is given in the step that sees the note
                         */
    RULE_END_EXCHANGES, /* a note ends in the step that sees what it has */
    RULE_END_DROPS,     /* who ends it has the reference that was given */
    RULE_DONOR_ASKS     /* what was lent is not written over */
} rule;

enum { EMPTY, NOTED, OWNED };       /* a slot */
enum { NOT_MADE, ALIVE, ENDED };    /* the node that it belongs to */
enum { HOLDS, FROM_NODE, DONATES }; /* a holder */
enum { CALLS = 4 /* beside these */ };

typedef struct count {
    uint8_t total, lent, asked;
} count;

enum {
    P_START,
    P_SEE_FLAG, /* calling: */
    P_SET_FLAG,
    P_NOTE,
    P_DONATE,
    P_DROP, /* dropping: */
    P_CHANGE,
    P_SCAN,
    P_GIVE,
    P_CHECK,
    P_READ, /* a node: */
    P_FINISH,
    P_FINISH_LATE,
    P_END
};

typedef struct actor {
    uint8_t pc, what, slot, from;
    uint8_t at;   /* slot that it looks at */
    uint8_t late; /* it has not noted yet, though it dropped */
    count seen;
} actor;

typedef struct state {
    count refs;
    uint8_t gone;
    uint8_t slot[SLOTS], node[SLOTS];
    actor a[ACTORS];
} state;

static rule without;

static void
touch(const state *s)
{
    must(!s->gone, "an array is touched that is gone");
}

/* ---- dropping ----------------------------------------------------------- */

static void
drop_ends(actor *a)
{
    a->pc = a->late ? P_NOTE : P_END;
}

static void
array_goes(state *s, actor *a)
{
    touch(s);
    s->gone = 1;
    drop_ends(a);
}

static void
decrement(state *s, actor *a)
{
    s->refs.total--;
    if (without != RULE_ASKED_GOES)
        s->refs.asked = 0;
    drop_ends(a);
}

static bool
same(count a, count b)
{
    return a.total == b.total && a.lent == b.lent && a.asked == b.asked;
}

/* The compare-exchange. */
static void
change_move(state *s, actor *a)
{
    touch(s);
    if (without == RULE_FLAG_IN_COUNT && !a->seen.lent) {
        decrement(s, a); /* whatever it is */
        if (s->refs.total == 0)
            array_goes(s, a);
    } else if (!same(s->refs, a->seen)) {
        a->pc = P_DROP;
    } else if (!a->seen.lent || without == RULE_SCAN) {
        decrement(s, a);
        if (a->seen.total == 1)
            array_goes(s, a);
    } else if (a->seen.total > 1) {
        decrement(s, a);
    } else {
        s->refs.asked = without != RULE_ASKED;
        a->seen = s->refs;
        a->at = 0;
        a->pc = P_SCAN;
    }
}

static void
scan_on(actor *a)
{
    a->at++;
    a->pc = a->at == SLOTS ? P_CHECK : P_SCAN;
}

static void
drop_move(state *s, actor *a)
{
    switch (a->pc) {
    case P_DROP:
        touch(s);
        a->seen = s->refs;
        a->pc = P_CHANGE;
        break;
    case P_CHANGE:
        change_move(s, a);
        break;
    case P_SCAN:
        if (s->slot[a->at] == NOTED)
            a->pc = P_GIVE;
        else
            scan_on(a);
        break;
    case P_GIVE:
        if (s->slot[a->at] == NOTED || without == RULE_GIVE_COMPARES) {
            s->slot[a->at] = OWNED;
            drop_ends(a);
        } else {
            scan_on(a);
        }
        break;
    default: /* P_CHECK */
        touch(s);
        if (same(s->refs, a->seen) || without == RULE_LOOK_AGAIN)
            array_goes(s, a);
        else
            a->pc = P_DROP;
    }
}

/* ---- holders ------------------------------------------------------------ */

static void
has_reference(actor *a)
{
    a->pc = a->what & CALLS ? P_SEE_FLAG : P_DROP;
}

/* The edge is there for as long as the node that it looks at: who walks makes
 * sure of that. */
static bool
start_move(state *s, actor *a)
{
    if ((a->what & ~CALLS) == FROM_NODE) {
        if (s->node[a->from] == NOT_MADE)
            return false;
        if (s->node[a->from] == ENDED) {
            a->pc = P_END;
            return true;
        }
        touch(s);
        s->refs.total++;
    }
    if ((a->what & ~CALLS) == DONATES)
        a->pc = P_DONATE;
    else
        has_reference(a);
    return true;
}

static void
donate_move(state *s, actor *a)
{
    touch(s);
    if (s->refs.total == 1 && (!s->refs.lent || without == RULE_DONOR_ASKS))
        for (int i = 0; i < SLOTS; i++)
            must(s->slot[i] == EMPTY, "an array is written over that is read");
    a->pc = P_DROP;
}

static bool
holder_move(state *s, actor *a)
{
    switch (a->pc) {
    case P_START:
        return start_move(s, a);
    case P_SEE_FLAG:
        touch(s);
        a->pc = s->refs.lent ? P_NOTE : P_SET_FLAG;
        break;
    case P_SET_FLAG:
        touch(s);
        s->refs.lent = 1;
        a->pc = P_NOTE;
        break;
    case P_NOTE:
        if (without == RULE_NOTE_FIRST && !a->late) {
            a->late = 1;
            a->pc = P_DROP;
            break;
        }
        s->slot[a->slot] = NOTED;
        s->node[a->slot] = ALIVE;
        a->pc = a->late ? P_END : P_DROP;
        break;
    default: /* P_DONATE */
        donate_move(s, a);
    }
    return true;
}

/* ---- nodes -------------------------------------------------------------- */

static void
finish(state *s, actor *a, uint8_t seen)
{
    s->slot[a->slot] = EMPTY;
    a->pc = seen == OWNED && without != RULE_END_DROPS ? P_DROP : P_END;
}

static bool
node_move(state *s, actor *a)
{
    switch (a->pc) {
    case P_READ:
        if (s->node[a->slot] == NOT_MADE)
            return false;
        touch(s);
        a->pc = P_FINISH;
        break;
    case P_FINISH:
        touch(s); /* it was read to the last moment */
        s->node[a->slot] = ENDED;
        a->at = s->slot[a->slot];
        if (without == RULE_END_EXCHANGES)
            a->pc = P_FINISH_LATE;
        else
            finish(s, a, a->at);
        break;
    default: /* P_FINISH_LATE */
        finish(s, a, a->at);
    }
    return true;
}

/* ---- the search --------------------------------------------------------- */

static bool
move(void *state_, int m)
{
    state *s = state_;
    actor *a = &s->a[m];

    if (a->pc == P_END)
        return false;
    if (a->pc >= P_READ)
        return node_move(s, a);
    if (a->pc < P_DROP)
        return holder_move(s, a);
    drop_move(s, a);
    return true;
}

/* For a node that was never made. */
static bool
waits(const state *s, const actor *a)
{
    if (a->pc == P_READ)
        return s->node[a->slot] == NOT_MADE;
    return a->pc == P_START && s->node[a->from] == NOT_MADE;
}

static void
check_end(const void *state_)
{
    const state *s = state_;

    for (int i = 0; i < ACTORS; i++)
        must(s->a[i].pc == P_END || waits(s, &s->a[i]),
             "somebody never comes back");
    must(s->gone, "an array stays that nobody has");
}

/* Holder i calls with slot i. */
typedef struct world {
    uint8_t what[HOLDERS], from[HOLDERS];
} world;

#define NONE 3

static const world worlds[] = {
    {{HOLDS | CALLS, HOLDS | CALLS, NONE}, {0}},
    {{HOLDS | CALLS, HOLDS | CALLS, HOLDS}, {0}},
    {{HOLDS | CALLS, HOLDS, HOLDS}, {0}},
    {{HOLDS | CALLS, FROM_NODE | CALLS, HOLDS}, {0, 0, 0}},
    {{FROM_NODE | CALLS, HOLDS | CALLS, NONE}, {1, 0, 0}},
    {{FROM_NODE | CALLS, HOLDS | CALLS, HOLDS}, {1, 0, 0}},
    {{FROM_NODE | CALLS, HOLDS | CALLS, FROM_NODE | CALLS}, {1, 0, 0}},
    {{FROM_NODE | CALLS, FROM_NODE | CALLS, HOLDS | CALLS}, {2, 2, 0}},
    {{HOLDS | CALLS, FROM_NODE, FROM_NODE}, {0, 0, 0}},
    {{DONATES, HOLDS | CALLS, NONE}, {0}},
    {{DONATES, HOLDS | CALLS, FROM_NODE | CALLS}, {0, 0, 1}},
};

static void
set_up(state *s, const world *w)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < HOLDERS; i++) {
        actor *a = &s->a[i];
        uint8_t what = w->what[i] & (uint8_t)~CALLS;

        a->what = w->what[i];
        a->slot = (uint8_t)i;
        a->from = w->from[i];
        a->pc = what == NONE ? P_END : P_START;
        s->refs.total += what == HOLDS || what == DONATES;
    }
    for (int i = 0; i < SLOTS; i++)
        s->a[HOLDERS + i] = (actor){.pc = P_READ, .slot = (uint8_t)i};
}

static const char *
explore(size_t which, int off, size_t *n)
{
    const world *w = &worlds[which];
    state start;
    search h = {.bytes = sizeof(state),
                .n_moves = ACTORS,
                .move = move,
                .check_end = check_end};

    set_up(&start, w);
    without = (rule)off;
    broken = NULL;
    search_all(&h, &start, 1 << 22);
    *n += h.n_seen;
    search_free(&h);
    return broken;
}

static void
lends__keep_their_promises(void **state_)
{
    (void)state_;
    search_all_hold(explore, MRT_COUNT(worlds), 10000);
}

static void
lends__need_each_rule(void **state_)
{
    (void)state_;
    search_rules_are_needed(explore, MRT_COUNT(worlds), RULE_DONOR_ASKS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lends__keep_their_promises),
        cmocka_unit_test(lends__need_each_rule),
    };

    return cmocka_run_group_tests_name("eval/lends", tests, NULL, NULL);
}
