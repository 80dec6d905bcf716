/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c -- the steps of each pass, and where registers live.
 *
 * Results live in slots of a tile's size, reused as soon as the last reader
 * has run.  A result that is an output is written straight to the output's
 * memory if the tile is contiguous there; unless that memory is also an
 * input's (donated) and a later step still reads it.
 */
#include <string.h>

#include "kernels/draw.h"
#include "kernels/schedule.h"

/* ---- geometry
 * ------------------------------------------------------------------ */

static int64_t
kept_dim(const mr_geometry *g, const mr_block_launch *l, int d)
{
    return d < 0 ? 1 : d == g->twin_dim ? g->half : l->dim[d];
}

/* Is each row of words a stream, and too long for all of it to be at hand? */
static bool
is_paired(const mr_geometry *g, const mr_lowered *low, const mr_block_launch *l)
{
    if (low->drawn == 0 || g->strategy != MR_RUN_LONG ||
        g->points <= MR_DRAW_ROW)
        return false;
    for (int i = 0; i < low->n_in; i++)
        if (((low->drawn >> i) & 1) &&
            (mr__elem_size((mr_dtype)low->dtype[i]) != 4 ||
             l->in[i].n != g->points * 4 || !mr__draw_is_row(l, &l->in[i], 4)))
            return false;
    return true;
}

/* Streams that are made in one go need no halves. */
static void
find_twins(mr_geometry *g, const mr_lowered *low, const mr_block_launch *l,
           int64_t tile)
{
    int d = -1;

    g->twin_dim = -1;
    g->half = g->shift = 0;
    g->paired = is_paired(g, low, l);
    if (g->strategy == MR_RUN_LONG)
        tile = g->points;
    if (low->drawn == 0 || g->strategy == MR_RUN_COLS ||
        (g->strategy == MR_RUN_LONG && g->points > MR_DRAW_ROW))
        return;
    for (int i = 0; i < low->n_in && d < 0; i++) {
        int64_t size = (int64_t)mr__elem_size((mr_dtype)low->dtype[i]);

        if (((low->drawn >> i) & 1) && l->in[i].n > tile * size)
            d = mr__draw_halves(l, g->n_dims, &l->in[i], size);
    }
    if (d < 0 || (l->dim[d] % 2 != 0 && d != g->inner_dim))
        return;
    g->twin_dim = d;
    g->half = l->dim[d] / 2;
    g->shift = l->dim[d] - g->half;
}

void
mr__geometry_make(mr_geometry *g, mr_strategy strategy, const mr_lowered *low,
                  const mr_block_launch *l, int outer_dim, int64_t outer,
                  int64_t inner)
{
    int n = low->rows ? l->n_kept : l->n_kept + l->n_red;
    bool map = strategy == MR_RUN_MAP, rows = strategy == MR_RUN_ROWS;
    bool cols = strategy == MR_RUN_COLS;

    *g = (mr_geometry){.strategy = strategy,
                       .hop = 1,
                       .parts = 1,
                       .n_dims = n,
                       .outer_dim = rows  ? n - 1
                                    : map ? outer_dim
                                          : -1,
                       .inner_dim = map || cols ? n - 1 : -1};
    g->points = 1;
    for (int i = n; i < l->n_kept + l->n_red; i++)
        g->points *= l->dim[i];
    find_twins(g, low, l, outer * inner);
    g->outer_n = cols ? g->points : kept_dim(g, l, g->outer_dim);
    g->inner_n = map || cols ? kept_dim(g, l, g->inner_dim) : g->points;
    g->outer = outer < g->outer_n ? outer : g->outer_n;
    g->inner = inner < g->inner_n ? inner : g->inner_n;
    g->outer += g->outer == 0;
    g->inner += g->inner == 0;
    g->n_outer = map || rows ? (g->outer_n + g->outer - 1) / g->outer : 1;
    g->n_inner = map || cols ? (g->inner_n + g->inner - 1) / g->inner : 1;
    g->n_inner += mr__has_middle(g);
    g->n_tiles = g->n_outer * g->n_inner;
    for (int i = 0; i < n; i++) {
        if (i != g->outer_dim && i != g->inner_dim)
            g->n_tiles *= kept_dim(g, l, i);
    }
}

static int64_t
stride_of(const mr_block_launch *l, const mr_block_io *io, int d, bool points,
          int64_t size)
{
    if (points)
        return l->n_red > 0 ? io->stride[l->n_kept + l->n_red - 1] : size;
    return d >= 0 ? io->stride[d] : size;
}

int64_t
mr__stride_outer(const mr_geometry *g, const mr_block_launch *l,
                 const mr_block_io *io, int64_t size)
{
    if (g->strategy == MR_RUN_LONG)
        return 0;
    return g->hop *
           stride_of(l, io, g->outer_dim, g->strategy == MR_RUN_COLS, size);
}

int64_t
mr__stride_inner(const mr_geometry *g, const mr_block_launch *l,
                 const mr_block_io *io, int64_t size)
{
    return stride_of(l, io, g->inner_dim,
                     g->strategy == MR_RUN_ROWS || g->strategy == MR_RUN_LONG,
                     size);
}

/* Are a tile's rows contiguous; and the rows one after the other? */
static bool
rows_contiguous(const mr_geometry *g, const mr_block_launch *l,
                const mr_block_io *io, int64_t size)
{
    if (g->strategy != MR_RUN_MAP && g->strategy != MR_RUN_COLS && l->n_red > 1)
        return false;
    return g->inner == 1 || mr__stride_inner(g, l, io, size) == size;
}

bool
mr__rows_contiguous(const mr_geometry *g, const mr_block_launch *l,
                    const mr_block_io *io, int64_t size)
{
    return rows_contiguous(g, l, io, size);
}

static bool
tile_contiguous(const mr_geometry *g, const mr_block_launch *l,
                const mr_block_io *io, int64_t size)
{
    if (!rows_contiguous(g, l, io, size))
        return false;
    if (g->outer == 1 || g->by_rows)
        return true;
    if (g->inner != g->inner_n)
        return false;
    return mr__stride_outer(g, l, io, size) == g->inner * size;
}

/* ---- passes
 * -------------------------------------------------------------------- */

static bool
whole_tiles(const mr_geometry *g)
{
    return g->strategy == MR_RUN_MAP || g->strategy == MR_RUN_ROWS;
}

/* The outputs of values that this pass writes. */
static uint32_t
pass_outputs(const mr_schedule *s, int p)
{
    uint32_t m = 0;

    for (int i = 0; i < s->low->n_out; i++) {
        if (!s->low->out_row[i] && (whole_tiles(&s->g) || s->out_pass[i] == p))
            m |= 1U << i;
    }
    return m;
}

static void
pass_select(const mr_schedule *s, int p, mr_pass *pass)
{
    const mr_lowered *low = s->low;
    bool whole = whole_tiles(&s->g);
    bool wanted[MR_LOW_REGS];
    bool take[MR_LOW_REGS];

    memset(wanted, 0, (size_t)low->n_reg);
    pass->outputs = pass_outputs(s, p);
    for (int i = 0; i < low->n_out; i++) {
        if ((pass->outputs >> i) & 1)
            wanted[low->out_reg[i]] = true;
    }
    for (int i = low->n_step - 1; i >= 0; i--) {
        const mr_step *t = &low->step[i];

        take[i] = whole || (mr__step_folds(t) ? low->phase[t->dst] == p + 1
                                              : !t->row && wanted[t->dst]);
        for (int j = 0; take[i] && j < t->n_arg; j++)
            wanted[t->arg[j]] = true;
    }
    pass->n = 0;
    pass->inputs = 0;
    pass->folds = false;
    pass->only_folds = true;
    for (int i = 0; i < low->n_step; i++) {
        if (!take[i])
            continue;
        pass->only_folds &=
            low->step[i].kind == MR_STEP_FOLD || low->step[i].row;
        pass->folds |= mr__step_folds(&low->step[i]);
        pass->step[pass->n++] = (uint16_t)i;
    }
    for (int i = 0; i < low->n_in; i++) {
        if (wanted[i] && !low->row[i])
            pass->inputs |= 1U << i;
    }
    pass->rowwise = pass->inputs;
    for (int k = 0; k < pass->n; k++) {
        const mr_step *t = &low->step[pass->step[k]];

        for (int j = 0; j < t->n_arg && !mr__step_folds(t); j++)
            if (t->arg[j] < low->n_in)
                pass->rowwise &= ~(1U << t->arg[j]);
    }
    pass->rowwise &= ~(low->gathered | low->drawn);
    for (int i = 0; i < low->n_in; i++) {
        if (!rows_contiguous(&s->g, s->l, &s->l->in[i],
                             (int64_t)mr__elem_size((mr_dtype)low->dtype[i])))
            pass->rowwise &= ~(1U << i);
    }
}

/* ---- chains
 * -------------------------------------------------------------------- */

/* How many operands of t are r, if t can go on with r as its chain's value. */
static int
goes_on(const mr_step *t, uint16_t r)
{
    int n = (t->arg[0] == r) + (t->n_arg > 1 && t->arg[1] == r);

    return t->chains && (n == 1 || (n == 2 && t->k == MR_K_MULTIPLY)) ? n : 0;
}

/* Steps in a row of which each is the one reader of the step before. */
static void
pass_chains(const mr_schedule *s, mr_pass *pass)
{
    const mr_lowered *low = s->low;
    uint16_t n_uses[MR_LOW_REGS];

    memset(n_uses, 0, (size_t)low->n_reg * sizeof *n_uses);
    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &low->step[pass->step[i]];

        for (int j = 0; j < t->n_arg; j++)
            n_uses[t->arg[j]]++;
    }
    for (int o = 0; o < low->n_out; o++) {
        if ((pass->outputs >> o) & 1)
            n_uses[low->out_reg[o]]++;
    }
    for (int i = 0, n; i < pass->n; i += n) {
        const mr_step *t = &low->step[pass->step[i]];

        for (n = 1; t->chains && i + n < pass->n && n < MR_CHAIN_STEPS; n++) {
            const mr_step *next = &low->step[pass->step[i + n]];
            int uses = goes_on(next, t->dst);

            if (uses == 0 || n_uses[t->dst] != uses ||
                low->dtype[next->dst] != low->dtype[t->dst])
                break;
            pass->chain[i + n] = 0;
            t = next;
        }
        pass->chain[i] = (uint8_t)n;
    }
}

/* Does the chain of step i end with it? */
static bool
ends_chain(const mr_pass *pass, int i)
{
    return pass->chain[i] <= 1 && (i + 1 == pass->n || pass->chain[i + 1] > 0);
}

/* ---- slots
 * --------------------------------------------------------------------- */

/* Does any step after position i read an input in the memory of output o? */
static bool
memory_is_read(const mr_schedule *s, const mr_pass *pass, int i, int o)
{
    const void *memory = s->l->out[o].data;

    if (!((s->alias_out >> o) & 1))
        return false;
    if (!whole_tiles(&s->g) && pass->folds)
        return true; /* folds run last */
    for (i++; i < pass->n; i++) {
        const mr_step *t = &s->low->step[pass->step[i]];

        for (int j = 0; j < t->n_arg; j++) {
            if (t->arg[j] < s->low->n_in && s->l->in[t->arg[j]].data == memory)
                return true;
        }
    }
    return false;
}

static int
direct_output(const mr_schedule *s, const mr_pass *pass, int i, uint16_t reg)
{
    for (int o = 0; o < s->low->n_out; o++) {
        if (((pass->outputs & s->direct_out) >> o & 1) == 0 ||
            s->low->out_reg[o] != reg)
            continue;
        return memory_is_read(s, pass, i, o) ? -1 : o;
    }
    return -1;
}

static void
pass_slots(const mr_schedule *s, mr_pass *pass)
{
    const mr_lowered *low = s->low;
    int16_t last[MR_LOW_REGS], free_slot[MR_LOW_REGS];
    int16_t slot_of[MR_LOW_REGS];
    int n_free = 0;

    pass->n_slot = 0;
    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &low->step[pass->step[i]];

        last[t->dst] = -1;
        slot_of[t->dst] = -1;
        for (int j = 0; j < t->n_arg; j++)
            last[t->arg[j]] = (int16_t)i;
    }
    for (int o = 0; o < low->n_out; o++) {
        if ((pass->outputs >> o) & 1)
            last[low->out_reg[o]] = INT16_MAX;
    }
    /* Chunks are folded after all steps of the pass. */
    for (int i = 0; i < pass->n && !whole_tiles(&s->g); i++) {
        if (mr__step_folds(&low->step[pass->step[i]]))
            last[low->step[pass->step[i]].arg[0]] = INT16_MAX;
    }
    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &low->step[pass->step[i]];
        int o;

        pass->slot[i] = 0;
        if (!t->row && !mr__step_folds(t) && ends_chain(pass, i)) {
            o = direct_output(s, pass, i, t->dst);
            if (o >= 0)
                pass->slot[i] = (int16_t)(-1 - o);
            else
                pass->slot[i] =
                    n_free > 0 ? free_slot[--n_free] : (int16_t)pass->n_slot++;
            slot_of[t->dst] = pass->slot[i];
        }
        for (int j = 0; j < t->n_arg; j++) {
            uint16_t r = t->arg[j];

            if (low->kind[r] != MR_REG_RESULT || low->row[r] || last[r] != i ||
                slot_of[r] < 0)
                continue;
            free_slot[n_free++] = slot_of[r];
            slot_of[r] = -1;
        }
        if (slot_of[t->dst] >= 0 && last[t->dst] < 0) { /* nobody reads it */
            free_slot[n_free++] = slot_of[t->dst];
            slot_of[t->dst] = -1;
        }
    }
}

static void
pass_make(const mr_schedule *s, int p, mr_pass *pass, mr_pass_room *room)
{
    pass->step = room->step;
    pass->chain = room->chain;
    pass->slot = room->slot;
    pass_select(s, p, pass);
    pass_chains(s, pass);
    pass_slots(s, pass);
}

const mr_pass *
mr__schedule_pass(const mr_schedule *s, int p, mr_pass *pass,
                  mr_pass_room *room)
{
    if (p < MR_PASSES_KEPT)
        return &s->pass[p];
    pass_make(s, p, pass, room);
    return pass;
}

static int
n_passes(const mr_schedule *s)
{
    return whole_tiles(&s->g) ? 1 : s->low->n_pass;
}

int
mr__schedule_kept(const mr_schedule *s)
{
    int n = n_passes(s);

    return n < MR_PASSES_KEPT ? n : MR_PASSES_KEPT;
}

/* ---- operands
 * ------------------------------------------------------------------- */

/* Inputs that only folds read may have rows apart. */
static uint32_t
only_folded(const mr_lowered *low)
{
    uint32_t m = ~0U;

    for (int i = 0; i < low->n_step; i++) {
        const mr_step *t = &low->step[i];

        for (int j = 0; j < t->n_arg && !mr__step_folds(t); j++) {
            if (t->arg[j] < low->n_in)
                m &= ~(1U << t->arg[j]);
        }
    }
    return m;
}

static void
inputs_make(mr_schedule *s)
{
    const mr_lowered *low = s->low;
    uint32_t folded = only_folded(low);

    s->words_apart = false;
    s->direct_in = s->rowwise_in = s->twin_in = 0;
    for (int i = 0; i < low->n_in; i++) {
        int64_t size = (int64_t)mr__elem_size((mr_dtype)low->dtype[i]);

        if (s->g.twin_dim >= 0 && ((low->drawn >> i) & 1) &&
            mr__draw_halves(s->l, s->g.n_dims, &s->l->in[i], size) ==
                s->g.twin_dim &&
            (s->g.strategy == MR_RUN_MAP ||
             mr__draw_is_row(s->l, &s->l->in[i], size)))
            s->twin_in |= 1U << i;
        if (low->row[i] ||
            (((low->splat_in | low->gathered | low->index_in | low->drawn) >>
              i) &
             1))
            continue;
        if (tile_contiguous(&s->g, s->l, &s->l->in[i], size))
            s->direct_in |= 1U << i;
        else if (((folded >> i) & 1) &&
                 rows_contiguous(&s->g, s->l, &s->l->in[i], size))
            s->rowwise_in |= 1U << i;
    }
}

static void
outputs_make(mr_schedule *s)
{
    const mr_lowered *low = s->low;

    s->direct_out = s->alias_out = 0;
    for (int o = 0; o < low->n_out; o++) {
        uint16_t r = low->out_reg[o];
        int64_t size = (int64_t)mr__elem_size((mr_dtype)low->dtype[r]);

        for (int i = 0; i < low->n_in; i++) {
            if (s->l->in[i].data == s->l->out[o].data)
                s->alias_out |= 1U << o;
        }
        s->out_pass[o] = (s->alias_out >> o) & 1 ? (uint8_t)(low->n_pass - 1)
                                                 : low->phase[r];
        if (!low->out_row[o] &&
            tile_contiguous(&s->g, s->l, &s->l->out[o], size))
            s->direct_out |= 1U << o;
    }
}

static void
spread_make(mr_schedule *s)
{
    const mr_lowered *low = s->low;

    memset(s->spread, 0, (size_t)low->n_reg);
    for (int i = 0; i < low->n_step && mr__tile_rows(&s->g) > 1; i++) {
        const mr_step *t = &low->step[i];

        for (int j = 0; j < t->n_arg && !t->row && !mr__step_folds(t); j++)
            s->spread[t->arg[j]] |= low->row[t->arg[j]];
    }
}

void
mr__schedule_make(mr_schedule *s, const mr_lowered *low,
                  const mr_block_launch *l, const mr_geometry *g,
                  mr_schedule_room *room)
{
    mr_pass_room more_room;
    mr_pass more;

    s->low = low;
    s->l = l;
    s->g = *g;
    s->spread = room->spread;
    inputs_make(s);
    outputs_make(s);
    spread_make(s);
    s->n_slot = 0;
    for (int p = 0; p < n_passes(s); p++) {
        bool kept = p < MR_PASSES_KEPT;
        mr_pass *pass = kept ? &s->pass[p] : &more;

        pass_make(s, p, pass, kept ? &room->pass[p] : &more_room);
        if (pass->n_slot > s->n_slot)
            s->n_slot = pass->n_slot;
    }
}
