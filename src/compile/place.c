/* SPDX-License-Identifier: Apache-2.0
 *
 * place.c -- where the values of a program lie: one workspace for a call, and
 * the outputs' own memory.
 *
 * 1. Lives: from the step that writes a value to the last that reads it.
 * 2. Heirs: a step may write over an input that dies there, a block program
 *    where its last reading instruction is not after the writing one, a kernel
 *    where its row says so.  A line of heirs has one memory; a line that ends
 *    in an output lies there from its beginning.
 * 3. Gifts: arguments that the caller has given up are the ends of lines too.
 * 4. Hosts: a product that a block follows begins the line of a result of that.
 * 5. Memory, from the last step to the first: an output's memory as long as
 *    that is not written yet, or the best fit among the gaps of the workspace.
 *    (From the first to the last the end of a chain finds the output's memory
 *    taken by its beginning.)
 * 6. Block steps are made ready, in order, with what they need besides.
 *
 * Small values (MEMORY_MATTERS) stay apart: they lie in cache anyway, and a
 * program that writes over its input does so in a pass more.
 *
 * Called by: build.c.
 */
#include "compile/place.h"

#include <string.h>

#include "base/error.h"
#include "eval/registry.h"

#define MEMORY_MATTERS 32768
/* Outputs whose memory is looked at for other values. */
#define MANY_OUTPUTS 64

int32_t
mr__value_new(mr_placing *w, int64_t bytes, int32_t out)
{
    if (w->n == w->cap) {
        int32_t cap = w->cap ? 2 * w->cap : 32;
        mr_value *more =
            mr__arena_alloc(w->scratch, (size_t)cap * sizeof *more);

        if (more == NULL)
            return -1;
        if (w->n > 0)
            memcpy(more, w->value, (size_t)w->n * sizeof *more);
        w->value = more;
        w->cap = cap;
    }
    w->value[w->n] = (mr_value){.size = bytes,
                                .bytes = (bytes + 63) & ~(int64_t)63,
                                .out = out,
                                .first = -1,
                                .last = -1,
                                .heir = -1,
                                .donor = -1,
                                .arg = -1,
                                .head = w->n};
    if (bytes <= 0)
        w->value[w->n].bytes = 64;
    return w->n++;
}

/* ---- lives
 * ------------------------------------------------------------------------ */

typedef struct placing {
    mr_placing *w;
    int32_t *arg_last;  /* the last step that reads an argument, -1: none */
    int32_t *out_from;  /* the first step at which an output's memory is
                           taken, of those looked at so far */
    int64_t *out_bytes; /* 0: it is not there to be used */
    int32_t *live;      /* lines in the workspace, by offset */
    int32_t n_live;
    int64_t top; /* bytes of workspace so far */
} placing;

static void
live_at(mr_placing *w, int32_t v, int32_t step)
{
    if (w->value[v].first < 0)
        w->value[v].first = step;
    if (w->value[v].last < step)
        w->value[v].last = step;
}

static void
find_lives(placing *pl)
{
    mr_placing *w = pl->w;
    const mr_program *p = w->p;

    for (int i = 0; i < p->n_args; i++)
        pl->arg_last[i] = -1;
    for (int32_t k = 0; k < p->n_steps; k++) {
        const mr_step *s = &p->steps[k];

        for (int i = 0; i < s->n_in; i++)
            if (s->in[i].kind == MR_SLOT_TEMP)
                live_at(w, s->in[i].value, k);
            else if (mr__slot_is_argument(p, &s->in[i]))
                pl->arg_last[s->in[i].index] = k;
        for (int i = 0; i < s->n_out; i++)
            live_at(w, s->out[i].value, k);
        if (s->workspace >= 0)
            live_at(w, (int32_t)s->workspace, k);
    }
    for (int32_t v = 0; v < w->n; v++)
        if (w->value[v].out >= 0)
            w->value[v].last = p->n_steps;
}

/* ---- heirs
 * ------------------------------------------------------------------------ */

/* Everything of one value, and nothing else of the step looks at that. */
static bool
is_whole_and_alone(const mr_step *s, int j, const mr_slot *out)
{
    const mr_slot *in = &s->in[j];

    if (in->byte_offset != 0 || in->ndim != out->ndim ||
        in->size != out->size ||
        mr__dtype_size(in->dtype) != mr__dtype_size(out->dtype) ||
        memcmp(in->dim, out->dim, (size_t)in->ndim * sizeof *in->dim) != 0 ||
        !mr__is_contiguous(in->ndim, in->dim, in->stride))
        return false;
    for (int i = 0; i < s->n_in; i++)
        if (i != j && s->in[i].kind == in->kind &&
            s->in[i].index == in->index && s->in[i].value == in->value)
            return false;
    return true;
}

/* May output k of the step be written over input j as it is read? */
static bool
may_write_over(const mr_step *s, int j, int k)
{
    const mr_block_code *c;
    int writes;

    if (s->block == NULL)
        return s->kernel != NULL && k == 0 && s->kernel->over == j + 1;
    c = &s->block->code;
    if (c->source != NULL && c->source[j].kind != MR_FROM_MEMORY)
        return false;
    if (mr__step_is_joined(s)) {
        j -= mr__step_kernel_inputs(s);
        if (j < 0 || j == s->block->product || k >= c->n_out)
            return false;
    }
    writes = c->out[k].reg - c->n_in - c->n_const;
    for (int i = writes + 1; i < c->n_inst; i++)
        if (c->inst[i].arg[0] == j || c->inst[i].arg[1] == j ||
            c->inst[i].arg[2] == j)
            return false;
    for (int i = 0; i < c->n_inst; i++)
        if (MR_K_IS_REDUCTION(c->inst[i].k)) /* reads its input twice */
            return false;
    return true;
}

/* A view of part of a value does not: the line would be larger than an output
 * in which it ends. */
static bool
inherits(const mr_placing *w, const mr_step *s, int32_t step, int j, int k)
{
    const mr_slot *in = &s->in[j];
    const mr_value *v = &w->value[in->value];

    return v->size == in->size * mr__dtype_size(in->dtype) && v->out < 0 &&
           v->last == step && v->first < step && v->heir < 0 &&
           is_whole_and_alone(s, j, &s->out[k]) && may_write_over(s, j, k);
}

static void
find_heirs(mr_placing *w)
{
    const mr_program *p = w->p;

    for (int32_t n = 0; n < p->n_steps; n++) {
        const mr_step *s = &p->steps[n];

        for (int k = 0; k < s->n_out; k++) {
            mr_value *v = &w->value[s->out[k].value];

            for (int j = 0;
                 j < s->n_in && v->donor < 0 && v->bytes >= MEMORY_MATTERS; j++)
                if (s->in[j].kind == MR_SLOT_TEMP && inherits(w, s, n, j, k)) {
                    v->donor = s->in[j].value;
                    w->value[v->donor].heir = s->out[k].value;
                }
        }
    }
}

/* The line's life and its output stand at its head; donors come first. */
static void
join_lines(mr_placing *w)
{
    for (int32_t v = 0; v < w->n; v++) {
        mr_value *x = &w->value[v], *head;

        if (x->donor < 0)
            continue;
        x->head = w->value[x->donor].head;
        head = &w->value[x->head];
        if (x->last > head->last)
            head->last = x->last;
        if (x->out >= 0)
            head->out = x->out;
    }
}

/* An argument that dies where the line of an output begins. */
static void
find_gifts(placing *pl)
{
    mr_placing *w = pl->w;
    mr_program *p = w->p;

    for (int32_t n = 0; n < p->n_steps; n++) {
        const mr_step *s = &p->steps[n];

        for (int k = 0; k < s->n_out; k++) {
            int32_t at = s->out[k].value;
            mr_value *v = &w->value[at];

            if (v->head != at || v->out < 0 || v->bytes < MEMORY_MATTERS)
                continue;
            for (int j = 0; j < s->n_in && v->arg < 0; j++) {
                int i = s->in[j].index;

                if (s->in[j].kind != MR_SLOT_ARG || i >= 64 ||
                    pl->arg_last[i] != n || p->keep[i]->size != s->in[j].size ||
                    !is_whole_and_alone(s, j, &s->out[k]) ||
                    !may_write_over(s, j, k) || p->lies_in[v->out] >= 0)
                    continue;
                p->could_take |= UINT64_C(1) << i;
                if (!(p->given >> i & 1))
                    continue;
                v->arg = i;
                p->lies_in[v->out] = i;
                pl->arg_last[i] = p->n_steps; /* no other's */
            }
        }
    }
}

/* A product that dies where it is made lies where an output of what follows it
 * will, the last that lies over nothing. */
static bool
host_of(mr_placing *w, const mr_step *s, int32_t step)
{
    int32_t at = s->out[s->n_out - 1].value;
    mr_value *product = &w->value[at];

    if (product->last > step || product->out >= 0 ||
        product->bytes < MEMORY_MATTERS)
        return false;
    for (int k = s->n_out - 2; k >= 0; k--) {
        mr_value *v = &w->value[s->out[k].value];

        if (v->donor >= 0 || v->arg >= 0 || v->size != product->size)
            continue;
        v->donor = at;
        product->heir = s->out[k].value;
        return true;
    }
    return false;
}

static void
find_hosts(mr_placing *w)
{
    const mr_program *p = w->p;
    bool any = false;

    for (int32_t n = 0; n < p->n_steps; n++)
        if (mr__step_is_joined(&p->steps[n]))
            any = host_of(w, &p->steps[n], n) || any;
    if (any)
        join_lines(w);
}

/* ---- memory
 * ----------------------------------------------------------------------- */

/* The narrowest gap of the workspace, or its end. */
static int64_t
best_gap(const placing *pl, int64_t bytes, int32_t *at)
{
    const mr_value *value = pl->w->value;
    int64_t end = 0, best = -1, best_room = INT64_MAX;

    for (int32_t i = 0; i < pl->n_live; i++) {
        const mr_value *v = &value[pl->live[i]];
        int64_t room = v->offset - end;

        if (room >= bytes && room < best_room) {
            best = end;
            best_room = room;
            *at = i;
        }
        end = v->offset + v->bytes;
    }
    if (best >= 0)
        return best;
    *at = pl->n_live;
    return end;
}

static void
live_insert(placing *pl, int32_t v, int32_t at)
{
    mr_value *x = &pl->w->value[v];

    memmove(pl->live + at + 1, pl->live + at,
            (size_t)(pl->n_live - at) * sizeof *pl->live);
    pl->live[at] = v;
    pl->n_live++;
    if (x->offset + x->bytes > pl->top)
        pl->top = x->offset + x->bytes;
}

static void
take_gap(placing *pl, int32_t v)
{
    mr_value *x = &pl->w->value[v];
    int32_t at;

    x->kind = MR_SLOT_TEMP;
    x->offset = best_gap(pl, x->bytes, &at);
    live_insert(pl, v, at);
}

/* An output's memory that is not written before v dies. */
static bool
take_output(placing *pl, mr_value *v)
{
    const mr_program *p = pl->w->p;
    int best = -1;

    if (v->bytes < MEMORY_MATTERS || p->n_out > MANY_OUTPUTS)
        return false;
    for (int k = 0; k < p->n_out; k++)
        if (pl->out_bytes[k] >= v->bytes && pl->out_from[k] > v->last &&
            (best < 0 || pl->out_bytes[k] < pl->out_bytes[best]))
            best = k;
    if (best < 0)
        return false;
    v->kind = MR_SLOT_OUT;
    v->index = best;
    v->offset = 0;
    pl->out_from[best] = v->first;
    return true;
}

/* The line that begins with v, which ends at this step. */
static void
place_line(placing *pl, int32_t v, int32_t step)
{
    mr_value *x = &pl->w->value[v];

    if (x->placed || x->last < step)
        return;
    x->placed = true;
    if (x->arg >= 0) {
        x->kind = MR_SLOT_ARG;
        x->index = x->arg;
    } else if (x->out >= 0) {
        x->kind = MR_SLOT_OUT;
        x->index = x->out;
    } else if (!take_output(pl, x)) {
        take_gap(pl, v);
    }
}

static void
place_slots(placing *pl, int n, const mr_slot *slot, int32_t step)
{
    for (int i = 0; i < n; i++)
        if (slot[i].kind == MR_SLOT_TEMP)
            place_line(pl, pl->w->value[slot[i].value].head, step);
}

/* Those that begin here are nobody's before. */
static void
drop_unborn(placing *pl, int32_t step)
{
    int32_t n = 0;

    for (int32_t i = 0; i < pl->n_live; i++)
        if (pl->w->value[pl->live[i]].first < step)
            pl->live[n++] = pl->live[i];
    pl->n_live = n;
}

static void
place_lines(placing *pl)
{
    const mr_program *p = pl->w->p;

    for (int32_t n = p->n_steps; n-- > 0;) {
        const mr_step *s = &p->steps[n];

        place_slots(pl, s->n_in, s->in, n);
        place_slots(pl, s->n_out, s->out, n);
        if (s->workspace >= 0) {
            pl->w->value[s->workspace].placed = true;
            take_gap(pl, (int32_t)s->workspace);
        }
        drop_unborn(pl, n);
    }
}

/* ---- ready
 * ------------------------------------------------------------------------ */

static void
settle(placing *pl, int n, const mr_slot *slot)
{
    for (int i = 0; i < n; i++) {
        mr_slot *s = (mr_slot *)(uintptr_t)&slot[i];
        const mr_value *v;

        if (s->kind != MR_SLOT_TEMP)
            continue;
        v = &pl->w->value[pl->w->value[s->value].head];
        s->kind = v->kind;
        s->index = v->kind == MR_SLOT_TEMP ? 0 : v->index;
        s->byte_offset += v->offset;
    }
}

/* An address that stands for a slot: the same for the same memory. */
static void *
stand_in(const mr_slot *s)
{
    uintptr_t kind = (uintptr_t)s->kind + 1, index = (uintptr_t)s->index;

    return (void *)((kind << 58 | index << 40) + (uintptr_t)s->byte_offset);
}

/* Everything at once, and row by row behind a kernel. */
void
mr__step_launch(const mr_step *s, bool rows, mr_block_launch *l)
{
    mr_task_operand o[2 * MR_CODE_MAX_IO];
    const mr_slot *in =
        s->kernel != NULL ? s->in + mr__step_kernel_inputs(s) : s->in;
    int n_in = s->block->code.n_in, n_out = s->block->code.n_out;

    for (int i = 0; i < n_in + n_out; i++) {
        const mr_slot *slot = i < n_in ? &in[i] : &s->out[i - n_in];

        mr__slot_operand(slot, stand_in(slot), &o[i]);
    }
    (rows ? mr__block_launch_rows : mr__block_launch_make)(s->block, o,
                                                           o + n_in, l);
}

/* What the block's runs have in common, made once where the device can; and
 * its workspace. */
static bool
make_ready(placing *pl, mr_step *s, int32_t step)
{
    mr_program *p = pl->w->p;
    const mr_block_code *code = &s->block->code;
    mr_block_launch l;
    size_t bytes = 0;
    int32_t v;

    mr__step_launch(s, false, &l);
    if (p->device->block_ready != NULL) {
        s->ready = p->device->block_ready(code, &l, &p->arena, &bytes);
        if (s->ready == NULL)
            return false;
    } else if (p->device->block_workspace != NULL) {
        bytes = p->device->block_workspace(code, &l);
    }
    if (bytes == 0)
        return true;
    v = mr__value_new(pl->w, (int64_t)bytes, -1);
    if (v < 0)
        return false;
    live_at(pl->w, v, step);
    take_gap(pl, v);
    s->workspace = pl->w->value[v].offset;
    return true;
}

/* Of the workspace, in the order of the steps. */
static void
enter(placing *pl, int32_t v, int32_t step)
{
    const mr_value *value = pl->w->value, *x = &value[v];
    int32_t at = 0;

    if (x->kind != MR_SLOT_TEMP || x->first != step)
        return;
    while (at < pl->n_live && value[pl->live[at]].offset < x->offset)
        at++;
    if (at == pl->n_live || pl->live[at] != v)
        live_insert(pl, v, at);
}

static void
drop_dead(placing *pl, int32_t step)
{
    int32_t n = 0;

    for (int32_t i = 0; i < pl->n_live; i++)
        if (pl->w->value[pl->live[i]].last > step)
            pl->live[n++] = pl->live[i];
    pl->n_live = n;
}

static bool
finish_step(placing *pl, int32_t n)
{
    mr_step *s = &pl->w->p->steps[n];

    for (int k = 0; k < s->n_out; k++)
        enter(pl, pl->w->value[s->out[k].value].head, n);
    if (s->workspace >= 0)
        s->workspace = pl->w->value[s->workspace].offset;
    settle(pl, s->n_in, s->in);
    settle(pl, s->n_out, s->out);
    if (s->block != NULL && !make_ready(pl, s, n))
        return false;
    drop_dead(pl, n);
    return true;
}

/* ---- all of it
 * -------------------------------------------------------------------- */

static bool
lists_new(placing *pl)
{
    const mr_program *p = pl->w->p;
    mr_arena *a = pl->w->scratch;
    size_t outs = (size_t)p->n_out + 1;

    pl->arg_last =
        mr__arena_alloc(a, ((size_t)p->n_args + 1) * sizeof *pl->arg_last);
    pl->out_from = mr__arena_alloc(a, outs * sizeof *pl->out_from);
    pl->out_bytes = mr__arena_zero(a, outs * sizeof *pl->out_bytes);
    /* at most all values, and a workspace for each step */
    pl->live = mr__arena_alloc(a, ((size_t)pl->w->n + (size_t)p->n_steps + 1) *
                                      sizeof *pl->live);
    return pl->arg_last != NULL && pl->out_from != NULL &&
           pl->out_bytes != NULL && pl->live != NULL;
}

static void
find_outputs(placing *pl)
{
    for (int32_t v = 0; v < pl->w->n; v++) {
        const mr_value *x = &pl->w->value[v];

        if (x->head != v || x->out < 0)
            continue;
        pl->out_from[x->out] = x->first;
        /* an argument's memory has its own readers */
        pl->out_bytes[x->out] = x->arg >= 0 || x->first < 0 ? 0 : x->bytes;
    }
}

bool
mr__place(mr_placing *w)
{
    mr_program *p = w->p;
    placing pl = {.w = w};

    p->lies_in =
        mr__arena_alloc(&p->arena, ((size_t)p->n_out + 1) * sizeof *p->lies_in);
    if (p->lies_in == NULL || !lists_new(&pl))
        return false;
    for (int k = 0; k < p->n_out; k++)
        p->lies_in[k] = -1;
    find_lives(&pl);
    find_heirs(w);
    join_lines(w);
    if (!mr__device_has_queues(p->device)) /* who gives up has it elsewhere */
        find_gifts(&pl);
    find_hosts(w);
    find_outputs(&pl);
    place_lines(&pl);
    pl.n_live = 0;
    for (int32_t n = 0; n < p->n_steps; n++)
        if (!finish_step(&pl, n))
            return false;
    p->workspace = (size_t)pl.top;
    return true;
}
