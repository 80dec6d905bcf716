/* SPDX-License-Identifier: Apache-2.0
 *
 * stages.c -- how a segment is cut into loops.
 *
 * A processor overlaps the points of a loop only as far as it looks ahead: a
 * body with one exp has several in flight, a body in which ten follow one
 * another waits for each.  So no loop gets more than one long function, and
 * what goes from loop to loop lies in slots on the stack, a strip of registers
 * each.  A segment with fewer long functions stays one loop.
 *
 * Called by: emit.c.
 */
#include <string.h>

#include "cpu/jit/jit.h"

#define MAX_STRIP 16
#define MIN_STRIP 8
#define ALL_SLOTS (16 << 10) /* bytes: near, and not much of a stack */

/* Does the operation take longer than what surrounds it? */
static bool
is_long(const mr_native_op *op)
{
    if (op->from < MR_FLOAT16)
        return false;
    switch (op->k) {
#define MR_X(id, name, n, r) case MR_K_##id:
        MR_K_MAP_FUNCTIONS(MR_X)
        MR_K_MAP_FUNCTIONS_2(MR_X)
#undef MR_X
    case MR_K_POWER:
        return op->k != MR_K_SQRT && op->k != MR_K_RSQRT &&
               op->k != MR_K_RECIPROCAL && op->k != MR_K_COPYSIGN;
    default:
        return false;
    }
}

static void
uses_note(mr_stages *t, const mr_segment *s)
{
    for (int i = 0; i < s->n_op; i++)
        for (int k = 0; k < s->op[i].n_arg; k++)
            t->last[s->op[i].arg[k]] = t->of[s->n_in + i];
    for (int o = 0; o < s->n_out; o++)
        t->last[s->out[o]] = (uint16_t)(t->n - 1);
}

/* A slot for each result that a later stage reads; it is taken again after the
 * last one that does. */
static void
slots_assign(mr_stages *t, const mr_segment *s)
{
    uint16_t busy[MR_NATIVE_OPS]; /* by slot: its last reader */

    for (int r = 0; r < s->n_in + s->n_op; r++) {
        int k = 0;

        t->slot[r] = -1;
        if (r < s->n_in || t->last[r] <= t->of[r])
            continue;
        while (k < t->n_slot && busy[k] >= t->of[r])
            k++;
        if (k == t->n_slot)
            t->n_slot++;
        busy[k] = t->last[r];
        t->slot[r] = (int16_t)k;
    }
}

static void
one_stage(mr_stages *t)
{
    memset(t, 0, sizeof *t);
    memset(t->slot, -1, sizeof t->slot);
    t->n = 1;
}

void
mr__jit_stages(mr_stages *t, const mr_segment *s, int64_t bytes)
{
    int n_long = 0;

    one_stage(t);
    for (int i = 0; i < s->n_op; i++) {
        n_long += is_long(&s->op[i]);
        t->of[s->n_in + i] = (uint16_t)(n_long > 1 ? n_long - 1 : 0);
    }
    if (n_long < 2)
        return;
    t->n = n_long;
    uses_note(t, s);
    slots_assign(t, s);
    t->strip = MAX_STRIP;
    while (t->strip >= MIN_STRIP && t->n_slot * bytes * t->strip > ALL_SLOTS)
        t->strip /= 2;
    if (t->strip < MIN_STRIP)
        one_stage(t);
}
