/* SPDX-License-Identifier: Apache-2.0
 *
 * native.c -- from a schedule to segments for compiled code.
 *
 * MAP has one segment.  LONG and COLS have one for each pass, and their
 * reductions stay the interpreter's, which reads what the segment stored.
 * ROWS has one for each phase; reductions of what a segment computes become
 * part of it, so that those values are stored only if a later phase wants
 * them.
 *
 * Compiled code reads and writes row by row, so operands need only be
 * contiguous along a row, and values of rows are not spread along them.  With
 * short rows that costs more than it saves: then everything is as the
 * interpreter has it, tiles are one piece of memory, and the code sees a tile
 * as a single row.
 *
 * Not covered (the interpreter goes on): programs of one instruction on
 * contiguous memory, more than four passes, segments of very many operands.
 * Called by: plan.c.
 */
#include <string.h>

#include "kernels/native_make.h"

typedef struct maker {
    mr_schedule *s;
    const mr_lowered *low;
    mr_arena *arena;
    bool narrow, failed, covered;
    int n_slot;
    uint8_t cheap[MR_LOW_REGS];  /* by register: steps to compute it again */
    uint8_t made[MR_LOW_REGS];   /* by register: in this segment */
    int16_t number[MR_LOW_REGS]; /* its number there, or -1 */
} maker;

static bool
is_narrow(const mr_geometry *g)
{
    return g->inner < MR_NATIVE_NARROW && g->outer > 1;
}

/* ---- operands in place
 * -------------------------------------------------------
 */

/* An input of MAP with one value for all points along a row of the tile. */
static bool
is_one_a_row(const mr_schedule *s, int i)
{
    int64_t size = (int64_t)mr__elem_size((mr_dtype)s->low->dtype[i]);

    return s->g.strategy == MR_RUN_MAP &&
           !(((s->low->gathered | s->low->drawn) >> i) & 1) &&
           mr__stride_inner(&s->g, s->l, &s->l->in[i], size) == 0;
}

static uint32_t
rowwise_inputs(const mr_schedule *s)
{
    uint32_t m = 0;

    for (int i = 0; i < s->low->n_in; i++) {
        int64_t size = (int64_t)mr__elem_size((mr_dtype)s->low->dtype[i]);

        if (!s->low->row[i] &&
            !(((s->low->splat_in | s->low->gathered) >> i) & 1) &&
            !(((s->low->index_in | s->low->drawn) >> i) & 1) &&
            (is_one_a_row(s, i) ||
             mr__rows_contiguous(&s->g, s->l, &s->l->in[i], size)))
            m |= 1U << i;
    }
    return m;
}

static uint32_t
rowwise_outputs(const mr_schedule *s)
{
    uint32_t m = 0;

    for (int o = 0; o < s->low->n_out; o++) {
        uint16_t r = s->low->out_reg[o];
        int64_t size = (int64_t)mr__elem_size((mr_dtype)s->low->dtype[r]);

        if (!s->low->out_row[o] &&
            mr__rows_contiguous(&s->g, s->l, &s->l->out[o], size))
            m |= 1U << o;
    }
    return m;
}

bool
mr__native_is_direct(const mr_schedule *s)
{
    const mr_lowered *low = s->low;
    uint32_t in = low->n_in < 32 ? (1U << low->n_in) - 1 : ~0U;
    uint32_t out = low->n_out < 32 ? (1U << low->n_out) - 1 : ~0U;

    if (is_narrow(&s->g))
        return (s->direct_in | low->splat_in) == in && s->direct_out == out;
    return (rowwise_inputs(s) | low->splat_in) == in &&
           rowwise_outputs(s) == out;
}

static void
operands_in_place(maker *k)
{
    mr_schedule *s = k->s;

    if (k->narrow)
        return;
    s->rowwise_in |= rowwise_inputs(s) & ~s->direct_in;
    s->direct_out = rowwise_outputs(s);
    memset(s->spread, 0, (size_t)k->low->n_reg);
}

/* ---- a segment
 * ---------------------------------------------------------------
 */

static void *
room(maker *k, size_t n, size_t bytes)
{
    void *p = mr__arena_zero(k->arena, (n + 1) * bytes);

    k->failed |= p == NULL;
    return p;
}

static mr_native_how
how_of(const maker *k, uint16_t r)
{
    const mr_lowered *low = k->low;
    mr_strategy strategy = k->s->g.strategy;

    if (low->kind[r] == MR_REG_CONST ||
        (low->kind[r] == MR_REG_INPUT && ((low->splat_in >> r) & 1)))
        return MR_NATIVE_ONE;
    if (!low->row[r])
        return low->kind[r] == MR_REG_INPUT && !k->narrow &&
                       is_one_a_row(k->s, r)
                   ? MR_NATIVE_ROW
                   : MR_NATIVE_POINTS;
    if (mr__tile_rows(&k->s->g) == 1)
        return MR_NATIVE_ONE;
    return strategy == MR_RUN_ROWS && !k->narrow ? MR_NATIVE_ROW
                                                 : MR_NATIVE_POINTS;
}

/* Registers that the steps read and do not make. */
static void
segment_inputs(maker *k, mr_native_segment *g, const uint16_t *step, int n)
{
    const mr_lowered *low = k->low;
    uint16_t *in = room(k, (size_t)n * 3, sizeof *in);
    mr_native_in *what = room(k, (size_t)n * 3, sizeof *what);

    if (k->failed)
        return;
    memset(k->made, 0, (size_t)low->n_reg);
    memset(k->number, -1, (size_t)low->n_reg * sizeof *k->number);
    for (int i = 0; i < n; i++)
        k->made[low->step[step[i]].dst] = 1;
    for (int i = 0; i < n; i++) {
        const mr_step *t = &low->step[step[i]];

        for (int j = 0; j < t->n_arg; j++) {
            uint16_t r = t->arg[j];

            if (k->made[r] || k->number[r] >= 0)
                continue;
            k->number[r] = (int16_t)g->code.n_in;
            in[g->code.n_in] = r;
            what[g->code.n_in++] =
                (mr_native_in){low->dtype[r], (uint8_t)how_of(k, r)};
        }
    }
    g->in = in;
    g->code.in = what;
}

static void
segment_ops(maker *k, mr_native_segment *g, const uint16_t *step, int n)
{
    const mr_lowered *low = k->low;
    mr_native_op *op = room(k, (size_t)n, sizeof *op);

    if (k->failed)
        return;
    for (int i = 0; i < n; i++) {
        const mr_step *t = &low->step[step[i]];

        op[i].k = t->kind == MR_STEP_CAST ? MR_K_CAST : t->k;
        op[i].n_arg = t->n_arg;
        op[i].from = low->dtype[t->arg[t->n_arg - 1]];
        op[i].to = low->dtype[t->dst];
        for (int j = 0; j < t->n_arg; j++)
            op[i].arg[j] = (uint16_t)k->number[t->arg[j]];
        k->number[t->dst] = (int16_t)(g->code.n_in + i);
    }
    g->code.op = op;
    g->code.n_op = (uint16_t)n;
}

/* Reductions over what the segment makes: `fold` are those of its phase. */
static void
segment_folds(maker *k, mr_native_segment *g, const uint16_t *fold, int n)
{
    const mr_lowered *low = k->low;
    uint16_t *in = room(k, (size_t)n, sizeof *in);
    uint16_t *after = room(k, (size_t)n, sizeof *after);
    mr_native_fold *what = room(k, (size_t)n, sizeof *what);

    if (k->failed)
        return;
    for (int i = 0; i < n; i++) {
        const mr_step *t = &low->step[fold[i]];
        uint16_t v = t->arg[0];

        if (k->narrow || t->kind != MR_STEP_FOLD || !k->made[v] ||
            g->code.n_fold == MR_NATIVE_FOLDS) {
            after[g->n_after++] = fold[i];
            continue;
        }
        in[g->code.n_fold] = fold[i];
        what[g->code.n_fold++] =
            (mr_native_fold){(uint16_t)k->number[v], low->dtype[v], t->fold};
    }
    g->fold = in;
    g->after = after;
    g->code.fold = what;
}

/* ---- what is stored
 * ----------------------------------------------------------
 */

typedef struct stores {
    uint16_t *out, *number;
    int16_t *slot;
    int n;
} stores;

static void
store(maker *k, stores *to, uint16_t r, int slot)
{
    if (to->n == MR_NATIVE_IO) {
        k->covered = false;
        return;
    }
    to->out[to->n] = r;
    to->number[to->n] = (uint16_t)k->number[r];
    to->slot[to->n++] = (int16_t)slot;
}

/* Native code has a group of points of each operand on its stack, and lanes:
 * a kernel may take 64 KB of it in all, and the frame has half. */
#define STACK_BYTES (16 * 1024)

static bool
fits_stack(const maker *k, const mr_native_segment *g)
{
    int64_t bytes = 0;

    for (int i = 0; i < g->code.n_in; i++)
        bytes += 16 * (int64_t)mr__elem_size((mr_dtype)g->code.in[i].dtype);
    for (int i = 0; i < g->code.n_out; i++)
        bytes +=
            16 * (int64_t)mr__elem_size((mr_dtype)k->low->dtype[g->out[i]]);
    for (int i = 0; i < g->code.n_fold; i++)
        bytes += MR_LANES *
                 (int64_t)mr__elem_size((mr_dtype)g->code.fold[i].dtype) * 2;
    return bytes <= STACK_BYTES;
}

/* Outputs of the set that the segment makes; in_place: those that may go
 * straight to memory.  wanted[r]: somebody reads register r later. */
static void
segment_stores(maker *k, mr_native_segment *g, const uint16_t *step, int n,
               uint32_t outputs, uint32_t in_place, const bool *wanted)
{
    const mr_lowered *low = k->low;
    size_t most = (size_t)(n + low->n_out);
    stores to = {room(k, most, 2), room(k, most, 2), room(k, most, 2), 0};

    for (int i = 0; i < n && !k->failed; i++) {
        uint16_t r = low->step[step[i]].dst;
        bool slot = wanted[r];

        for (int o = 0; o < low->n_out; o++) {
            if (!((outputs >> o) & 1) || low->out_reg[o] != r)
                continue;
            if ((in_place >> o) & 1)
                store(k, &to, r, -1 - o);
            else
                slot = true;
        }
        if (slot)
            store(k, &to, r, k->n_slot++);
    }
    g->out = to.out;
    g->slot = to.slot;
    g->code.out = to.number;
    g->code.n_out = (uint16_t)to.n;
    k->covered &= k->failed || fits_stack(k, g);
}

/* ---- passes
 * ------------------------------------------------------------------
 */

static void
segment_make(maker *k, mr_native_segment *g, const uint16_t *step, int n)
{
    segment_inputs(k, g, step, n);
    if (!k->failed)
        segment_ops(k, g, step, n);
    if (g->code.n_in > MR_NATIVE_IO || n > MR_NATIVE_OPS)
        k->covered = false;
}

/* LONG, COLS: values of the pass; what it folds is stored. */
static void
pass_make(maker *k, int p, mr_native_pass *to)
{
    const mr_lowered *low = k->low;
    const mr_pass *pass = &k->s->pass[p];
    uint16_t step[MR_LOW_REGS];
    bool wanted[MR_LOW_REGS] = {false};
    uint32_t in_place = k->s->direct_out;
    int n = 0;

    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &low->step[pass->step[i]];

        if (mr__step_folds(t))
            wanted[t->arg[0]] = true;
        else if (!t->row)
            step[n++] = pass->step[i];
    }
    if (pass->folds)
        in_place &= ~k->s->alias_out; /* folds run last */
    to->n = 1;
    to->segment = room(k, 1, sizeof *to->segment);
    if (k->failed)
        return;
    segment_make(k, to->segment, step, n);
    if (!k->failed)
        segment_stores(k, to->segment, step, n, pass->outputs, in_place,
                       wanted);
}

/* ---- what is computed again
 * --------------------------------------------------- A value of an earlier
 * phase is stored by its segment and read again, unless computing it anew takes
 * about as long as that. */

#define CHEAP_STEPS 3

static bool
is_cheap_step(const mr_step *t)
{
    if (t->row || mr__step_folds(t))
        return false;
    return t->kind == MR_STEP_CAST || t->k == MR_K_COPY || t->k == MR_K_ABS ||
           t->k == MR_K_NEGATIVE || t->k == MR_K_SQUARE || t->k == MR_K_ADD ||
           t->k == MR_K_SUBTRACT || t->k == MR_K_MULTIPLY;
}

/* For each value: how many steps it takes from what lies in memory, if these
 * are few and cheap; else 0. */
static void
cheap_find(maker *k)
{
    const mr_lowered *low = k->low;

    memset(k->cheap, 0, (size_t)low->n_reg);
    for (int i = 0; i < low->n_step; i++) {
        const mr_step *t = &low->step[i];
        int n = 1;

        for (int j = 0; j < t->n_arg; j++) {
            uint16_t r = t->arg[j];

            if (low->kind[r] == MR_REG_RESULT && !low->row[r])
                n += k->cheap[r] > 0 ? k->cheap[r] : CHEAP_STEPS;
        }
        k->cheap[t->dst] =
            is_cheap_step(t) && n <= CHEAP_STEPS ? (uint8_t)n : 0;
    }
}

/* The steps of phase p, and those before it that it computes again. */
static int
phase_steps(const maker *k, int p, uint16_t *step)
{
    const mr_lowered *low = k->low;
    bool take[MR_LOW_REGS] = {false}, again[MR_LOW_REGS] = {false};
    int n = 0;

    for (int i = low->n_step - 1; i >= 0; i--) {
        const mr_step *t = &low->step[i];

        if (t->row || mr__step_folds(t))
            continue;
        take[i] = low->phase[t->dst] == p || again[t->dst];
        for (int j = 0; take[i] && j < t->n_arg; j++)
            again[t->arg[j]] |= k->cheap[t->arg[j]] > 0;
    }
    for (int i = 0; i < low->n_step; i++)
        if (take[i])
            step[n++] = (uint16_t)i;
    return n;
}

/* Is a value of phase p read in a later phase, or by a reduction that is not
 * part of its segment? */
static void
wanted_later(const maker *k, const mr_native_segment *g, int p, bool *wanted)
{
    const mr_lowered *low = k->low;

    memset(wanted, 0, (size_t)low->n_reg);
    for (int i = 0; i < low->n_step; i++) {
        const mr_step *t = &low->step[i];

        for (int j = 0; j < t->n_arg; j++) {
            if (!t->row && low->phase[t->arg[j]] == p &&
                low->phase[t->dst] > p && !mr__step_folds(t))
                wanted[t->arg[j]] = k->cheap[t->arg[j]] == 0;
        }
    }
    for (int i = 0; i < g->n_after; i++)
        wanted[low->step[g->after[i]].arg[0]] = true;
}

/* Do phases after p, or reductions left at p, read memory of inputs? */
static bool
inputs_read_later(const maker *k, const mr_native_segment *g, int p)
{
    const mr_lowered *low = k->low;

    for (int i = 0; i < low->n_step; i++) {
        const mr_step *t = &low->step[i];
        int phase = low->phase[t->dst] - mr__step_folds(t);

        if (!t->row && phase > p)
            return true;
    }
    return g->n_after > 0;
}

static uint32_t
phase_outputs(const maker *k, int p)
{
    uint32_t m = 0;

    for (int o = 0; o < k->low->n_out; o++)
        if (!k->low->out_row[o] && k->low->phase[k->low->out_reg[o]] == p)
            m |= 1U << o;
    return m;
}

static void
phase_make(maker *k, int p, mr_native_segment *g)
{
    const mr_lowered *low = k->low;
    uint16_t step[MR_LOW_REGS], fold[MR_LOW_REGS];
    uint16_t *before = room(k, (size_t)low->n_step, sizeof *before);
    bool wanted[MR_LOW_REGS];
    uint32_t in_place = k->s->direct_out;
    int n, n_fold = 0;

    for (int i = 0; i < low->n_step && !k->failed; i++) {
        const mr_step *t = &low->step[i];

        if (mr__step_folds(t) && low->phase[t->dst] == p + 1)
            fold[n_fold++] = (uint16_t)i;
        else if (t->row && low->phase[t->dst] == p)
            before[g->n_before++] = (uint16_t)i;
    }
    n = phase_steps(k, p, step);
    g->before = before;
    segment_make(k, g, step, n);
    if (k->failed)
        return;
    segment_folds(k, g, fold, n_fold);
    wanted_later(k, g, p, wanted);
    if (inputs_read_later(k, g, p))
        in_place &= ~k->s->alias_out;
    segment_stores(k, g, step, n, phase_outputs(k, p), in_place, wanted);
}

/* MAP, ROWS: all phases in one go. */
static void
whole_make(maker *k, mr_native_pass *to)
{
    to->n = k->low->n_pass;
    to->segment = room(k, (size_t)to->n, sizeof *to->segment);
    for (int p = 0; p < to->n && !k->failed; p++)
        phase_make(k, p, &to->segment[p]);
}

/* An index that is computed: its registers are numbered as a segment's are. */
static void
index_make(maker *k, mr_native_segment *g, const mr_index_code *c)
{
    int n_in = c->n_in + c->n_const;
    mr_native_in *in = room(k, (size_t)n_in, sizeof *in);
    mr_native_op *op = room(k, c->n_inst, sizeof *op);
    uint16_t *out = room(k, 1, sizeof *out);

    if (k->failed)
        return;
    for (int i = 0; i < n_in; i++)
        in[i] = (mr_native_in){c->dtype[i],
                               i < c->n_in ? MR_NATIVE_POINTS : MR_NATIVE_ONE};
    for (int i = 0; i < c->n_inst; i++) {
        const mr_inst *t = &c->inst[i];
        int n_arg = mr__k_operands((mr_k)t->k);

        op[i].k = c->dtype[t->arg[0]] == c->dtype[t->dst] && t->k == MR_K_CAST
                      ? MR_K_COPY
                      : t->k;
        op[i].n_arg = (uint8_t)n_arg;
        op[i].from = c->dtype[t->arg[n_arg - 1]];
        op[i].to = c->dtype[t->dst];
        for (int j = 0; j < n_arg; j++)
            op[i].arg[j] = t->arg[j];
    }
    *out = (uint16_t)(n_in + c->n_inst - 1);
    g->code = (mr_segment){.n_in = (uint16_t)n_in,
                           .n_op = c->n_inst,
                           .n_out = 1,
                           .in = in,
                           .op = op,
                           .out = out};
}

static void
indices_make(maker *k, mr_native_pass *to)
{
    to->n = k->low->n_indices;
    to->segment = room(k, (size_t)to->n, sizeof *to->segment);
    for (int i = 0; i < to->n && !k->failed; i++)
        index_make(k, &to->segment[i], &k->low->indices[i]);
}

static bool
computes(const mr_native *n)
{
    for (int p = 0; p < n->n_pass; p++)
        for (int i = 0; i < n->pass[p].n; i++)
            if (n->pass[p].segment[i].code.n_op > 0)
                return true;
    return n->index.n > 0;
}

mr_native *
mr__native_make(mr_schedule *s, mr_arena *arena)
{
    bool whole = s->g.strategy == MR_RUN_MAP || s->g.strategy == MR_RUN_ROWS;
    maker k = {.s = s,
               .low = s->low,
               .arena = arena,
               .narrow = is_narrow(&s->g),
               .covered = true};
    mr_native *n = room(&k, 1, sizeof *n);
    int most = 0;

    if (k.failed)
        return NULL;
    n->n_pass = whole ? 1 : s->low->n_pass;
    if (n->n_pass > MR_PASSES_KEPT) {
        n->n_pass = 0;
        return n;
    }
    operands_in_place(&k);
    cheap_find(&k);
    for (int p = 0; p < n->n_pass && !k.failed; p++) {
        k.n_slot = 0;
        if (whole)
            whole_make(&k, &n->pass[p]);
        else
            pass_make(&k, p, &n->pass[p]);
        most = k.n_slot > most ? k.n_slot : most;
    }
    indices_make(&k, &n->index);
    if (k.failed)
        return NULL;
    s->n_slot = most;
    if (!k.covered || !computes(n))
        n->n_pass = 0;
    return n;
}
