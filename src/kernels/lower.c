/* SPDX-License-Identifier: Apache-2.0
 *
 * lower.c -- from a block program to the steps that the interpreter runs.
 *
 * Looks the kernels up and rewrites what has no kernel of its own: values are
 * cast before a reduction that wants another dtype, logsumexp becomes max,
 * exp, sum and log, and an output or a reduced operand that no instruction
 * computes (an input, a constant, a row's value along the row) is copied by
 * one.  Takes tens of nanoseconds for usual programs, so eager runs do it anew
 * each time, without memory of their own.
 */
#include <assert.h>
#include <string.h>

#include "kernels/lower.h"

static const mr_const zero_const = {.u64 = {0, 0}};

typedef struct lowering {
    mr_lowered *o;
    const mr_tier *tier;
} lowering;

static uint16_t
reg_new(mr_lowered *o, mr_dtype dtype, bool row)
{
    int r = o->n_reg++;

    assert(r < MR_LOW_REGS);
    o->kind[r] = MR_REG_RESULT;
    o->dtype[r] = (uint8_t)dtype;
    o->row[r] = row;
    return (uint16_t)r;
}

static uint16_t
const_new(mr_lowered *o, mr_dtype dtype, const mr_const *value)
{
    uint16_t r = reg_new(o, dtype, false);

    o->kind[r] = MR_REG_CONST;
    o->phase[r] = 0;
    o->value[r] = value;
    return r;
}

static mr_step *
step_new(mr_lowered *o, mr_step_kind kind, uint16_t dst, int n_arg,
         const uint16_t *arg)
{
    mr_step *s = &o->step[o->n_step++];
    uint8_t phase = 0;

    assert(o->n_step <= MR_LOW_REGS);
    *s = (mr_step){.kind = (uint8_t)kind, .dst = dst, .n_arg = (uint8_t)n_arg};
    for (int i = 0; i < n_arg; i++) {
        s->arg[i] = arg[i];
        if (o->phase[arg[i]] > phase)
            phase = o->phase[arg[i]];
    }
    o->phase[dst] = phase;
    return s;
}

static bool
chains(mr_k k)
{
#define MR_X(id, name)                                                         \
    if (k == MR_K_##id)                                                        \
        return true;
    MR_CHAIN_V(MR_X)
    MR_CHAIN_VV(MR_X)
#undef MR_X
    return false;
}

static void
map_new(lowering *w, mr_k k, uint16_t dst, const uint16_t *arg)
{
    mr_lowered *o = w->o;
    int n = mr__k_operands(k);
    mr_dtype dtype = (mr_dtype)o->dtype[arg[n - 1]]; /* select: the values */
    mr_step *s = step_new(o, MR_STEP_MAP, dst, n, arg);

    s->row = o->row[dst];
    s->k = (uint8_t)k;
    s->chains = !s->row && w->tier->dtype[dtype]->chain != NULL && chains(k);
    s->fn.map = w->tier->dtype[dtype]->map[k];
    assert(s->fn.map != NULL);
}

static void
cast_new(lowering *w, uint16_t dst, uint16_t from)
{
    mr_lowered *o = w->o;
    mr_step *s;

    if (o->dtype[dst] == o->dtype[from]) {
        map_new(w, MR_K_COPY, dst, &from);
        return;
    }
    s = step_new(o, MR_STEP_CAST, dst, 1, &from);
    s->row = o->row[dst];
    s->fn.cast = w->tier->casts->cast[o->dtype[from]][o->dtype[dst]];
}

/* ---- reductions
 * -------------------------------------------------------------- */

static bool
is_plain_value(const mr_lowered *o, uint16_t r)
{
    if (o->row[r] || o->kind[r] == MR_REG_CONST)
        return false;
    return o->kind[r] != MR_REG_INPUT || !((o->splat_in >> r) & 1);
}

/* A register with the values of r in the dtype, one a point. */
static uint16_t
values_of(lowering *w, uint16_t r, mr_dtype dtype)
{
    uint16_t v;

    if (w->o->dtype[r] == dtype && is_plain_value(w->o, r))
        return r;
    v = reg_new(w->o, dtype, false);
    cast_new(w, v, r);
    return v;
}

static mr_fold
fold_of(mr_k k)
{
    if (k == MR_R_PROD)
        return MR_FOLD_PROD;
    if (k == MR_R_MAX || k == MR_R_ANY)
        return MR_FOLD_MAX;
    if (k == MR_R_MIN || k == MR_R_ALL)
        return MR_FOLD_MIN;
    return MR_FOLD_SUM;
}

static bool
is_half(mr_dtype d)
{
    return d == MR_FLOAT16 || d == MR_BFLOAT16;
}

/* dst = the reduction of r, whose values are brought to the dtype first. */
static void
fold_new(lowering *w, mr_k k, uint16_t dst, uint16_t r, mr_dtype dtype)
{
    mr_lowered *o = w->o;
    uint16_t v = values_of(w, r, dtype);
    const mr_tier_dtype *t = w->tier->dtype[dtype];
    bool arg = k == MR_R_ARGMAX || k == MR_R_ARGMIN;
    mr_step *s = step_new(o, arg ? MR_STEP_ARG : MR_STEP_FOLD, dst, 1, &v);

    o->phase[dst]++;
    o->row[dst] = true;
    o->n_fold++;
    s->k = (uint8_t)k;
    s->acc = (uint8_t)t->acc;
    s->fold = (uint8_t)fold_of(k);
    s->exact_lanes = s->fold != MR_FOLD_PROD ||
                     (dtype != MR_COMPLEX64 && dtype != MR_COMPLEX128);
    if (arg)
        s->fn.arg_fns = &t->arg[k == MR_R_ARGMIN];
    else
        s->fn.fold = &t->fold[s->fold];
}

/* A mean whose sum may be beyond its type: there that of the values times
 * 2^-64 is taken, where no digits are lost that matter. */
static void
mean_careful(lowering *w, uint16_t dst, uint16_t r)
{
    /* a real number is the real part: float32, float64 */
    static const mr_const down[2] = {{.u64 = {0x1F800000, 0}},
                                     {.c128 = {0x1p-64, 0}}};
    static const mr_const up[2] = {{.u64 = {0x5F800000, 0}},
                                   {.c128 = {0x1p64, 0}}};
    mr_lowered *o = w->o;
    mr_dtype t = (mr_dtype)o->dtype[dst];
    mr_dtype acc = is_half(t) ? MR_FLOAT32 : t;
    int wide = acc == MR_FLOAT64 || acc == MR_COMPLEX128;
    uint16_t m = reg_new(o, acc, true), finite = reg_new(o, MR_BOOL, true);
    uint16_t far = reg_new(o, acc, true), far_up = reg_new(o, acc, true);
    uint16_t small = reg_new(o, acc, false), x;
    uint16_t mean = t == acc ? dst : reg_new(o, acc, true);

    fold_new(w, MR_R_MEAN, m, r, is_half(t) ? (mr_dtype)o->dtype[r] : t);
    x = values_of(w, r, acc);
    map_new(w, MR_K_MULTIPLY, small,
            (uint16_t[]){x, const_new(o, acc, &down[wide])});
    fold_new(w, MR_R_MEAN, far, small, acc);
    map_new(w, MR_K_MULTIPLY, far_up,
            (uint16_t[]){far, const_new(o, acc, &up[wide])});
    map_new(w, MR_K_ISFINITE, finite, &m);
    o->row[mean] = true;
    map_new(w, MR_K_SELECT, mean, (uint16_t[]){finite, m, far_up});
    if (mean != dst)
        cast_new(w, dst, mean);
}

static void
reduce(lowering *w, mr_k k, uint16_t dst, uint16_t r)
{
    mr_dtype from = (mr_dtype)w->o->dtype[r], to = (mr_dtype)w->o->dtype[dst];

    if (k == MR_R_MEAN && w->o->careful) {
        mean_careful(w, dst, r);
        return;
    }
    if (k == MR_R_ANY || k == MR_R_ALL)
        from = MR_BOOL;
    else if (k != MR_R_ARGMAX && k != MR_R_ARGMIN && !is_half(to))
        from = to;
    fold_new(w, k, dst, r, from);
}

/* log(sum(exp(x - m))) + m with m the maximum, or 0 where that is infinite or
 * NaN; halves are computed in float32. */
static void
logsumexp(lowering *w, uint16_t dst, uint16_t r)
{
    mr_lowered *o = w->o;
    mr_dtype dtype = (mr_dtype)o->dtype[r];
    mr_dtype acc = is_half(dtype) ? MR_FLOAT32 : dtype;
    bool last = (mr_dtype)o->dtype[dst] == acc;
    uint16_t x = values_of(w, r, acc), zero = const_new(o, acc, &zero_const);
    uint16_t m = reg_new(o, acc, true), finite = reg_new(o, MR_BOOL, true);
    uint16_t m0 = reg_new(o, acc, true), d = reg_new(o, acc, false);
    uint16_t e = reg_new(o, acc, false), s = reg_new(o, acc, true);
    uint16_t log = reg_new(o, acc, true);
    uint16_t sum = last ? dst : reg_new(o, acc, true);

    fold_new(w, MR_R_MAX, m, x, acc);
    map_new(w, MR_K_ISFINITE, finite, &m);
    map_new(w, MR_K_SELECT, m0, (uint16_t[]){finite, m, zero});
    map_new(w, MR_K_SUBTRACT, d, (uint16_t[]){x, m0});
    map_new(w, MR_K_EXP, e, &d);
    fold_new(w, MR_R_SUM, s, e, acc);
    map_new(w, MR_K_LOG, log, &s);
    o->row[sum] = true;
    map_new(w, MR_K_ADD, sum, (uint16_t[]){log, m0});
    if (!last)
        cast_new(w, dst, sum);
}

/* ---- values that only reductions read
 * --------------------------------------------------------------
 * A half in memory need not be widened before it is folded, nor x - c be
 * stored where the sum of its squares, or of its exponentials, is wanted. */

typedef struct readers {
    int16_t maker[MR_LOW_REGS]; /* the step that computes a register, or -1 */
    uint8_t n[MR_LOW_REGS];     /* steps and outputs that read it, up to 2 */
} readers;

static void
readers_count(const mr_lowered *o, readers *u)
{
    for (int r = 0; r < o->n_reg; r++) {
        u->maker[r] = -1;
        u->n[r] = 0;
    }
    for (int i = 0; i < o->n_step; i++) {
        const mr_step *t = &o->step[i];

        u->maker[t->dst] = (int16_t)i;
        for (int j = 0; j < t->n_arg; j++)
            u->n[t->arg[j]] += u->n[t->arg[j]] < 2;
    }
    for (int i = 0; i < o->n_out; i++)
        u->n[o->out_reg[i]] = 2;
}

static bool
is_in_memory(const mr_lowered *o, uint16_t r)
{
    return o->kind[r] == MR_REG_INPUT && is_plain_value(o, r);
}

/* The half in memory that register r is the float32 of; else r. */
static uint16_t
half_of(const mr_lowered *o, const readers *u, uint16_t r)
{
    const mr_step *t = u->maker[r] >= 0 ? &o->step[u->maker[r]] : NULL;

    if (t != NULL && t->kind == MR_STEP_CAST && o->dtype[r] == MR_FLOAT32 &&
        is_half((mr_dtype)o->dtype[t->arg[0]]) && is_in_memory(o, t->arg[0]))
        return t->arg[0];
    return r;
}

static const mr_step *
map_of(const mr_lowered *o, const readers *u, uint16_t r, mr_k k)
{
    const mr_step *t = u->maker[r] >= 0 ? &o->step[u->maker[r]] : NULL;

    return t != NULL && t->kind == MR_STEP_MAP && t->k == k && u->n[r] == 1
               ? t
               : NULL;
}

static void
fold_near(lowering *w, const readers *u, mr_step *t)
{
    const mr_step *f = map_of(w->o, u, t->arg[0], MR_K_SQUARE), *d;
    mr_near near = MR_NEAR_SQUARE;
    uint16_t x, centre;

    if (f == NULL) {
        f = map_of(w->o, u, t->arg[0], MR_K_EXP);
        near = MR_NEAR_EXP;
    }
    d = f != NULL ? map_of(w->o, u, f->arg[0], MR_K_SUBTRACT) : NULL;
    if (d == NULL || t->fold != MR_FOLD_SUM)
        return;
    x = half_of(w->o, u, d->arg[0]);
    centre = d->arg[1];
    if (!is_in_memory(w->o, x) || !w->o->row[centre] ||
        w->o->kind[centre] != MR_REG_RESULT || w->o->dtype[centre] != t->acc ||
        w->tier->dtype[w->o->dtype[x]]->near[near].rows == NULL)
        return;
    t->near = &w->tier->dtype[w->o->dtype[x]]->near[near];
    t->arg[0] = x;
    t->arg[1] = centre;
    t->n_arg = 2;
}

/* Steps that nobody reads any more are left out. */
static void
steps_drop(mr_lowered *o)
{
    readers u;
    bool drop[MR_LOW_REGS];
    int n = 0;

    readers_count(o, &u);
    for (int i = o->n_step - 1; i >= 0; i--) {
        const mr_step *t = &o->step[i];

        drop[i] = (t->kind == MR_STEP_MAP || t->kind == MR_STEP_CAST) &&
                  !t->row && u.n[t->dst] == 0;
        for (int j = 0; drop[i] && j < t->n_arg; j++)
            u.n[t->arg[j]] -= u.n[t->arg[j]] == 1;
    }
    for (int i = 0; i < o->n_step; i++)
        if (!drop[i])
            o->step[n++] = o->step[i];
    o->n_step = n;
}

static void
folds_from_memory(lowering *w)
{
    mr_lowered *o = w->o;
    bool changed = false;
    readers u;

    readers_count(o, &u);
    for (int i = 0; i < o->n_step; i++) {
        mr_step *t = &o->step[i];
        uint16_t v = t->arg[0], h;

        if (t->kind != MR_STEP_FOLD)
            continue;
        h = half_of(o, &u, v);
        if (h != v) {
            t->fn.fold = &w->tier->dtype[o->dtype[h]]->fold[t->fold];
            t->arg[0] = h;
        } else {
            fold_near(w, &u, t);
        }
        changed |= t->arg[0] != v;
    }
    if (changed)
        steps_drop(o);
}

/* ---- the whole
 * ----------------------------------------------------------------- */

static bool
is_splat(const mr_block_launch *l, const mr_block_io *io)
{
    for (int i = 0; i < l->n_kept + l->n_red; i++) {
        if (l->dim[i] != 1 && io->stride[i] != 0)
            return false;
    }
    return true;
}

static void
registers(mr_lowered *o, const mr_block_code *c, const mr_block_launch *l)
{
    bool rows = false;

    for (int i = 0; i < c->n_inst; i++)
        rows |= MR_K_IS_REDUCTION(c->inst[i].k);
    for (int r = 0; r < c->n_reg; r++)
        rows |= l->n_red > 0 && c->reg_row[r];
    o->rows = rows;
    o->n_reg = c->n_reg;
    for (int r = 0; r < c->n_reg; r++) {
        o->dtype[r] = c->reg_dtype[r];
        o->row[r] = rows && c->reg_row[r];
        o->kind[r] = MR_REG_RESULT;
        o->phase[r] = 0;
    }
    for (int r = 0; r < c->n_in; r++) {
        o->kind[r] = MR_REG_INPUT;
        if (c->source != NULL && c->source[r].kind != MR_FROM_MEMORY) {
            *(c->source[r].kind == MR_FROM_DRAW    ? &o->drawn
              : c->source[r].kind == MR_FROM_INDEX ? &o->index_in
                                                   : &o->gathered) |= 1U << r;
            o->row[r] &= c->source[r].kind == MR_FROM_GATHER;
        } else if (is_splat(l, &l->in[r])) {
            o->splat_in |= 1U << r;
            o->row[r] = false;
        }
    }
    for (int r = 0; r < c->n_const; r++) {
        o->kind[c->n_in + r] = MR_REG_CONST;
        o->row[c->n_in + r] = false;
        o->value[c->n_in + r] = &c->consts[r];
    }
}

static void
outputs(lowering *w, const mr_block_code *c)
{
    mr_lowered *o = w->o;

    o->n_out = c->n_out;
    for (int i = 0; i < c->n_out; i++) {
        uint16_t r = c->out[i].reg;
        bool row = o->rows && c->out[i].per_row;

        if (o->kind[r] != MR_REG_RESULT || o->row[r] != row) {
            uint16_t v = reg_new(o, (mr_dtype)o->dtype[r], row);

            map_new(w, MR_K_COPY, v, &r);
            r = v;
        }
        o->out_reg[i] = r;
        o->out_row[i] = row;
    }
}

static void
late_find(mr_lowered *o)
{
    o->late_in = 0;
    for (int i = 0; i < o->n_in && o->gathered != 0; i++)
        if (o->row[i] && (o->gathered >> i & 1))
            o->late_in |= 1U << i;
    for (int i = 0; i < o->n_step && o->late_in != 0; i++)
        for (int j = 0; !o->step[i].row && j < o->step[i].n_arg; j++)
            if (o->step[i].arg[j] < o->n_in)
                o->late_in &= ~(1U << o->step[i].arg[j]);
}

void
mr__lower(const mr_block_code *c, const mr_block_launch *l, const mr_tier *tier,
          bool careful, mr_lowered *o, mr_lowered_room *room)
{
    lowering w = {o, tier};

    o->careful = careful;
    o->step = room->step;
    o->value = room->value;
    o->kind = room->kind;
    o->dtype = room->dtype;
    o->phase = room->phase;
    o->row = room->row;
    o->n_step = o->n_fold = o->n_row = 0;
    o->splat_in = o->gathered = o->index_in = o->drawn = 0;
    o->source = c->source;
    o->indices = c->indices;
    o->n_indices = c->n_indices;
    o->n_in = c->n_in;
    registers(o, c, l);
    for (int i = 0; i < c->n_inst; i++) {
        const mr_inst *in = &c->inst[i];
        mr_k k = (mr_k)in->k;

        if (k == MR_R_LOGSUMEXP)
            logsumexp(&w, in->dst, in->arg[0]);
        else if (MR_K_IS_REDUCTION(k))
            reduce(&w, k, in->dst, in->arg[0]);
        else if (k == MR_K_CAST)
            cast_new(&w, in->dst, in->arg[0]);
        else
            map_new(&w, k, in->dst, in->arg);
    }
    outputs(&w, c);
    if (o->n_fold > 0 && o->n_step > 1)
        folds_from_memory(&w);
    late_find(o);
    o->n_pass = 1;
    o->max_size = 1;
    for (int r = 0; r < o->n_reg; r++) {
        int size = (int)mr__elem_size((mr_dtype)o->dtype[r]);

        if (size > o->max_size)
            o->max_size = size;
        o->n_row += o->row[r];
        if (o->phase[r] + 1 > o->n_pass)
            o->n_pass = o->phase[r] + 1;
    }
}
