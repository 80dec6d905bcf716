/* SPDX-License-Identifier: Apache-2.0
 *
 * passes.c -- rows in several passes: long ones, and columns side by side.
 *
 * Each pass goes over the blocks of a row (program.h), chunk by chunk: values
 * first, then the folds take them.  A block's 64 lanes are combined pairwise;
 * finished blocks join a binary counter.
 *
 * Columns: lane l of a block has the points l, l + 64, ...  Where these are
 * rows in memory (`hop`), the lanes are gone over one after the other, in the
 * order of the leaves of the tree that combines them, so that one lane and a
 * counter of finished subtrees are alive for each column, not 64 lanes: wide
 * panels fit the cache, and what is read are long pieces.  Otherwise points
 * come in their order and all lanes are alive.
 *
 * Rows that are split: rounds, one for each pass.  Units of a round run over
 * groups of pieces, put the pieces' results into scratch, and begin from the
 * reductions of earlier rounds, which the joins left there.  A piece is a block
 * or, of columns that are gone over lane by lane, a subtree of its lanes: what
 * joins pieces is then the rest of the block's tree, and a counter of pieces
 * that are a power of two to a block is one of blocks.
 * Called by: interp.c.  Calls: interp.c, the folds of the tier in use.
 */
#include <string.h>

#include "base/integers.h"
#include "kernels/draw.h"
#include "kernels/run.h"

#define FORESEEN_ROWS 4
/* Blocks of a long row that one call folds, 256 KB of float32.  A call for each
 * block (its lanes to memory and back, and all that stands around it) took 60
 * ns beside 200 of reading from the third level. */
#define MOST_AT_ONCE 16

static void
acc_copy(char *to, const char *from, int64_t size)
{
    if (size == 4)
        memcpy(to, from, 4);
    else if (size == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, (size_t)size);
}

/* ---- finished blocks
 * --------------------------------------------------------------------- */

/* Finished blocks of `rows` rows, from level to level `width` bytes apart. */
typedef struct counter {
    const mr_step *t;
    char *at;
    int64_t width, rows;
} counter;

static counter
counter_of(const mr_run *r, const mr_step *t)
{
    return (counter){t, mr__at_blocks(r, t->dst), r->f->lane_bytes[t->dst],
                     r->rows};
}

/* Block b joins those before it of its own size, those twice as large, and so
 * on. */
static void
counter_push(const counter *c, int64_t b, const void *acc)
{
    char *top = c->at + c->width * __builtin_popcountll((unsigned long long)b);

    memcpy(top, acc, mr__acc_size(c->t) * (size_t)c->rows);
    for (; b & 1; b >>= 1, top -= c->width)
        c->t->fn.fold->combine(top - c->width, top, c->rows);
}

/* As many blocks as a call folds, one after the other in `from` and `bytes`
 * apart; one row.  A whole group is joined level by level, for which its
 * values lie in the order of their bits back to front: pairs are then halves
 * apart. */
static void
counter_push_some(const counter *c, int64_t b, int64_t n, const char *from,
                  int64_t bytes)
{
    static const uint8_t place[MOST_AT_ONCE] = {0, 8, 4, 12, 2, 10, 6, 14,
                                                1, 9, 5, 13, 3, 11, 7, 15};
    _Alignas(64) char group[MOST_AT_ONCE * 16];
    int64_t size = (int64_t)mr__acc_size(c->t);

    if (n < MOST_AT_ONCE || b % MOST_AT_ONCE != 0) {
        for (int64_t i = 0; i < n; i++)
            counter_push(c, b + i, from + i * bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        acc_copy(group + place[i] * size, from + i * bytes, size);
    for (int64_t h = n / 2; h > 0; h /= 2)
        c->t->fn.fold->combine(group, group + h * size, h);
    counter_push(c, b / n, group);
}

static void *
counter_total(const counter *c, int64_t n_blocks)
{
    int n = __builtin_popcountll((unsigned long long)n_blocks);

    for (int i = n - 1; i > 0; i--)
        c->t->fn.fold->combine(c->at + (i - 1) * c->width, c->at + i * c->width,
                               c->rows);
    return c->at;
}

/* ---- chunks
 * --------------------------------------------------------------------- */

/* Points [p, end) of a chunk are in one row of the last reduced dim. */
static int64_t
chunk_points(const mr_run *r, int64_t p, int64_t end)
{
    const mr_geometry *g = &r->s->g;
    int64_t n = end - p;

    if (g->strategy == MR_RUN_LONG)
        return mr__min(n, g->inner);
    n = mr__min(n, g->outer);
    return r->l->n_red > 1 ? mr__piece_length(r->l, p, n) : n;
}

/* Pieces of rows that lie apart are beyond what the processor foresees: those
 * of the n points from p on are brought near while others are worked on. */
static void
chunk_foresee(const mr_run *r, const mr_pass *pass, int64_t p, int64_t n,
              int64_t inner)
{
    const mr_geometry *g = &r->s->g;

    /* folds of what lies in memory foresee all but their first rows */
    n = mr__min(n, pass->only_folds && g->hop > 1 ? FORESEEN_ROWS : g->outer);
    for (int i = 0; pass->inputs >> i != 0; i++) {
        const mr_block_io *io = &r->l->in[i];
        int64_t size = (int64_t)mr__reg_size(r, i);
        int64_t row = mr__stride_outer(g, r->l, io, size);
        const char *at = r->in[i] + mr__point_offset(r->l, io, p);

        if (!(pass->inputs >> i & 1) || (r->low->splat_in >> i & 1) ||
            mr__stride_inner(g, r->l, io, size) != size)
            continue;
        for (int64_t k = 0; k < n; k++, at += row)
            for (int64_t b = 0; b < inner * size; b += 64)
                __builtin_prefetch(at + b);
    }
    for (int o = 0; pass->outputs >> o != 0; o++) {
        const mr_block_io *io = &r->l->out[o];
        int64_t size = (int64_t)mr__reg_size(r, r->low->out_reg[o]);
        int64_t row = mr__stride_outer(g, r->l, io, size);
        const char *at = r->out[o] + mr__point_offset(r->l, io, p);

        if (!(pass->outputs >> o & 1) ||
            mr__stride_inner(g, r->l, io, size) != size)
            continue;
        for (int64_t k = 0; k < n; k++, at += row)
            for (int64_t b = 0; b < inner * size; b += 64)
                __builtin_prefetch(at + b, 1);
    }
}

/* The values of n points from p on, g.hop apart. */
static void
chunk_values(mr_run *r, const mr_pass *pass, int64_t p, int64_t n,
             int64_t inner)
{
    bool cols = r->s->g.strategy == MR_RUN_COLS;
    uint32_t direct = pass->outputs & r->s->direct_out;
    int64_t outer = cols ? n : 1;

    inner = cols ? inner : n;
    mr__run_inputs(r, pass, outer, inner, p);
    /* outputs written in place begin at the chunk's first point */
    for (int o = 0; direct != 0 && o < r->low->n_out; o++) {
        if (direct >> o & 1)
            r->out[o] += mr__point_offset(r->l, &r->l->out[o], p);
    }
    mr__run_values(r, pass, outer, inner);
    for (int o = 0; direct != 0 && o < r->low->n_out; o++) {
        if (direct >> o & 1)
            r->out[o] -= mr__point_offset(r->l, &r->l->out[o], p);
    }
    mr__run_outputs(r, pass->outputs, outer, inner, p);
}

/* ---- blocks whose points come in their order
 * --------------------------------------------------------------------- */

static void
folds_begin(mr_run *r, const mr_pass *pass, bool args_too)
{
    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &r->low->step[pass->step[i]];
        int64_t width = r->f->lane_bytes[t->dst], n = MR_LANES;

        if (t->kind == MR_STEP_ARG && args_too)
            memset(mr__at_blocks(r, t->dst), 0,
                   sizeof(uint32_t) * (size_t)r->rows);
        if (t->kind != MR_STEP_FOLD)
            continue;
        if (r->s->g.strategy == MR_RUN_COLS) {
            if (t->exact_lanes && r->s->g.points < n)
                n = r->s->g.points > 0 ? r->s->g.points : 1;
            n *= width / (int64_t)mr__acc_size(t);
        }
        t->fn.fold->fill(mr__at_lanes(r, t->dst), n);
    }
}

/* Bytes from a row of an input to the row that is gone over next. */
static int64_t
next_row(const mr_run *r, int i)
{
    return r->l->n_kept > 0 ? r->l->in[i].stride[r->l->n_kept - 1] : 0;
}

/* The folds of a pass take a chunk whose points start at p, p - block in its
 * block; first: nothing was folded yet (argmax). */
static void
folds_take(mr_run *r, const mr_pass *pass, int64_t outer, int64_t inner,
           int64_t p, int64_t block, bool first)
{
    bool cols = r->s->g.strategy == MR_RUN_COLS;

    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &r->low->step[pass->step[i]];
        int v = t->arg[0];
        void *lanes = mr__at_lanes(r, t->dst);
        uint32_t *index = (uint32_t *)(void *)mr__at_blocks(r, t->dst);

        if (t->near != NULL && cols)
            t->near->cols(lanes, r->f->lane_bytes[t->dst], r->ptr[v],
                          r->row_bytes[v], p - block, outer, inner,
                          mr__at_row(r, t->arg[1]));
        else if (t->near != NULL)
            t->near->step(lanes, r->ptr[v], inner, mr__at_row(r, t->arg[1]),
                          next_row(r, v));
        else if (t->kind == MR_STEP_FOLD && cols)
            t->fn.fold->cols(lanes, r->f->lane_bytes[t->dst], r->ptr[v],
                             r->row_bytes[v], p - block, outer, inner);
        else if (t->kind == MR_STEP_FOLD)
            t->fn.fold->step(lanes, r->ptr[v], inner);
        else if (t->kind == MR_STEP_ARG && cols)
            t->fn.arg_fns->cols(lanes, index, r->ptr[v], r->row_bytes[v],
                                (uint32_t)p, outer, inner, first);
        else if (t->kind == MR_STEP_ARG)
            t->fn.arg_fns->row(lanes, index, r->ptr[v], inner, (uint32_t)p,
                               first);
    }
}

/* ---- blocks lane by lane
 * --------------------------------------------------------------------- */

/* The lane that is leaf i of the tree which combines l with l + 32, then 16,
 * ... 1: the bits of i back to front. */
static int64_t
leaf_lane(int i)
{
    int64_t l = 0;

    for (int b = 0; b < 6; b++)
        l |= (int64_t)(i >> b & 1) << (5 - b);
    return l;
}

/* Lane i of the tree is finished, on top of the subtrees before it; `absent`
 * says which of these have no lane.  Returns it for the next. */
static uint32_t
leaf_join(mr_run *r, const mr_step *t, int i, bool empty, uint32_t absent)
{
    int64_t width = r->f->lane_bytes[t->dst];
    int top = __builtin_popcount((unsigned)i);

    absent = empty ? absent | 1U << top : absent & ~(1U << top);
    for (; i & 1; i >>= 1, top--) {
        char *at = mr__at_lanes(r, t->dst) + top * width;

        if (!(absent >> top & 1))
            t->fn.fold->combine(at - width, at, r->rows);
    }
    return absent;
}

/* The leaves of a subtree. */
typedef struct leaves {
    int begin, end;
} leaves;

/* The folds of the points l, l + 64, ... of n, into the top of the subtree. */
static void
lane_run(mr_run *r, const mr_pass *pass, int64_t block, leaves of, int i,
         int64_t n, int64_t inner)
{
    int64_t l = leaf_lane(i), next = i + 1 < of.end ? leaf_lane(i + 1) : n;
    int top = __builtin_popcount((unsigned)(i - of.begin));
    int64_t count = l < n ? (n - l - 1) / MR_LANES + 1 : 0;

    for (int k = 0; k < pass->n; k++) {
        const mr_step *t = &r->low->step[pass->step[k]];
        int64_t width = r->f->lane_bytes[t->dst];

        if (t->kind == MR_STEP_FOLD)
            t->fn.fold->fill(mr__at_lanes(r, t->dst) + top * width, r->rows);
    }
    for (int64_t q = 0, m; q < count; q += m) {
        m = mr__min(count - q, r->s->g.outer);
        if (q + m < count)
            chunk_foresee(r, pass, block + l + (q + m) * MR_LANES,
                          count - q - m, inner);
        else if (next < n)
            chunk_foresee(r, pass, block + next, (n - next - 1) / MR_LANES + 1,
                          inner);
        chunk_values(r, pass, block + l + q * MR_LANES, m, inner);
        for (int k = 0; k < pass->n; k++) {
            const mr_step *t = &r->low->step[pass->step[k]];
            int64_t width = r->f->lane_bytes[t->dst];
            int v = t->arg[0];

            if (t->near != NULL)
                t->near->cols(mr__at_lanes(r, t->dst) + top * width, 0,
                              r->ptr[v], r->row_bytes[v], 0, m, inner,
                              mr__at_row(r, t->arg[1]));
            else if (t->kind == MR_STEP_FOLD)
                t->fn.fold->cols(mr__at_lanes(r, t->dst) + top * width, 0,
                                 r->ptr[v], r->row_bytes[v], 0, m, inner);
        }
    }
}

static void
block_by_lanes(mr_run *r, const mr_pass *pass, int64_t block, leaves of,
               int64_t n, int64_t inner)
{
    uint32_t absent = 0; /* what folds leave out, but those not exact */

    for (int i = of.begin; i < of.end; i++) {
        int64_t l = leaf_lane(i);
        uint32_t after = absent;

        lane_run(r, pass, block, of, i, n, inner);
        for (int k = 0; k < pass->n; k++) {
            const mr_step *t = &r->low->step[pass->step[k]];

            if (t->kind == MR_STEP_FOLD && t->exact_lanes)
                after = leaf_join(r, t, i - of.begin, l >= n, absent);
            else if (t->kind == MR_STEP_FOLD)
                (void)leaf_join(r, t, i - of.begin, false, 0);
        }
        absent = after;
    }
}

/* ---- blocks
 * --------------------------------------------------------------------- */

/* The block's values of one fold, for each row of the tile. */
static const void *
fold_block_done(mr_run *r, const mr_step *t, int64_t n, void *one)
{
    char *lanes = mr__at_lanes(r, t->dst);

    if (r->s->g.hop > 1)
        return lanes;
    if (r->s->g.strategy == MR_RUN_COLS) {
        t->fn.fold->cols_done(lanes, r->f->lane_bytes[t->dst],
                              mr__min(n, MR_LANES), r->rows);
        return lanes;
    }
    t->fn.fold->done(one, lanes);
    return one;
}

/* Values and folds of a piece in one pass: of `parts` of block b the one that
 * is `part`; fresh: argmax starts anew. */
static void
piece_run(mr_run *r, const mr_pass *pass, int64_t b, int part, int parts,
          int64_t inner, bool fresh)
{
    bool cols = r->s->g.strategy == MR_RUN_COLS;
    int64_t block = b * MR_RED_BLOCK;
    int64_t n_block = mr__min(MR_RED_BLOCK, r->s->g.points - block);
    int64_t begin = block + n_block * part / parts;
    int64_t end = block + n_block * (part + 1) / parts;

    if (r->s->g.hop > 1) {
        leaves of = {MR_LANES / parts * part, MR_LANES / parts * (part + 1)};

        block_by_lanes(r, pass, block, of, n_block, inner);
        return;
    }
    if (pass->folds)
        folds_begin(r, pass, fresh);
    for (int64_t p = begin, n; p < end; p += n) {
        n = chunk_points(r, p, end);
        if (cols && !r->s->g.flat && p + n < r->s->g.points)
            chunk_foresee(r, pass, p + n, r->s->g.points - p - n, inner);
        chunk_values(r, pass, p, n, inner);
        if (pass->folds)
            folds_take(r, pass, cols ? n : 1, cols ? inner : n, p, block,
                       fresh && p == block);
    }
}

/* Does one call of the pass's one fold take blocks from where they lie? */
static bool
takes_blocks(const mr_run *r, const mr_pass *pass)
{
    uint32_t in_place = pass->rowwise & ~r->low->splat_in;
    const mr_step *t;

    if (r->s->g.strategy != MR_RUN_LONG || pass->n != 1 || pass->outputs != 0)
        return false;
    t = &r->low->step[pass->step[0]];
    return t->kind == MR_STEP_FOLD && t->arg[0] < r->low->n_in &&
           (in_place >> t->arg[0] & 1);
}

/* Blocks from b on, before `end`, of one call: whole ones, or the last. */
static int64_t
blocks_of_call(const mr_run *r, int64_t b, int64_t end)
{
    end = mr__min(end, r->s->g.points / MR_RED_BLOCK);
    return end <= b ? 1 : mr__min(end - b, MOST_AT_ONCE);
}

/* acc[i] = the fold of block b + i of the row at x, for n of them. */
static void
blocks_fold(const mr_run *r, const mr_step *t, const char *x, int64_t b,
            int64_t n, void *acc)
{
    int64_t bytes = MR_RED_BLOCK * (int64_t)mr__reg_size(r, t->arg[0]);
    int64_t points = mr__min(MR_RED_BLOCK, r->s->g.points - b * MR_RED_BLOCK);
    _Alignas(64) char centre[MOST_AT_ONCE * 16];

    x += b * bytes;
    if (t->near == NULL) {
        t->fn.fold->rows(acc, x, points, n, bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        acc_copy(centre + i * (int64_t)mr__acc_size(t),
                 mr__at_row(r, t->arg[1]), (int64_t)mr__acc_size(t));
    t->near->rows(acc, x, points, n, bytes, centre, next_row(r, t->arg[0]));
}

/* All blocks of the row at x; the result is at the counter's bottom. */
static void
row_fold(const mr_run *r, const counter *c, const char *x)
{
    int64_t n_blocks = mr__row_blocks(r->s->g.points);
    _Alignas(64) char some[MOST_AT_ONCE * 16];

    for (int64_t b = 0, m; b < n_blocks; b += m) {
        m = blocks_of_call(r, b, n_blocks);
        blocks_fold(r, c->t, x, b, m, some);
        counter_push_some(c, b, m, some, (int64_t)mr__acc_size(c->t));
    }
}

void
mr__fold_long_rows(const mr_run *r, const mr_step *t, void *acc, const char *x,
                   int64_t row_bytes)
{
    int64_t size = (int64_t)mr__acc_size(t);
    _Alignas(64) char levels[64 * 16];
    counter c = {t, levels, size, 1};
    char *to = acc;

    for (int64_t i = 0; i < r->rows; i++, x += row_bytes, to += size) {
        row_fold(r, &c, x);
        acc_copy(to, counter_total(&c, mr__row_blocks(r->s->g.points)), size);
    }
}

/* Points in their order, or lane by lane in passes with folds. */
static void
pass_begin(mr_run *r, const mr_pass *pass)
{
    r->s->g.hop = r->s->g.by_lanes && pass->folds ? MR_LANES : 1;
    memset(r->held, 0, sizeof r->held);
}

static void
pass_finish(mr_run *r, const mr_pass *pass, int64_t n_blocks, int64_t inner)
{
    int64_t outer = r->s->g.outer;

    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &r->low->step[pass->step[i]];
        counter c = counter_of(r, t);

        if (t->kind == MR_STEP_FOLD)
            mr__fold_finish(r, t, counter_total(&c, n_blocks), outer, inner);
        else if (t->kind == MR_STEP_ARG)
            mr__arg_finish(r, t, outer, inner);
    }
}

/* A pass over the blocks of a tile: what they fold joins the counter. */
static void
pass_blocks(mr_run *r, const mr_pass *pass, int64_t n_blocks, int64_t inner)
{
    _Alignas(64) char one[16];

    if (takes_blocks(r, pass)) {
        const mr_step *t = &r->low->step[pass->step[0]];
        counter c = counter_of(r, t);

        row_fold(r, &c, r->in[t->arg[0]]);
        return;
    }
    for (int64_t b = 0; pass->n > 0 && b < n_blocks; b++) {
        int64_t n = mr__min(MR_RED_BLOCK, r->s->g.points - b * MR_RED_BLOCK);

        piece_run(r, pass, b, 0, 1, inner, b == 0);
        for (int i = 0; pass->folds && i < pass->n; i++) {
            const mr_step *t = &r->low->step[pass->step[i]];
            counter c = counter_of(r, t);

            if (t->kind == MR_STEP_FOLD)
                counter_push(&c, b, fold_block_done(r, t, n, one));
        }
    }
}

static void
passes_all(mr_run *r, int64_t outer, int64_t inner)
{
    int64_t n_blocks = mr__row_blocks(r->s->g.points);
    mr_pass_room room;
    mr_pass more;

    mr__run_row_inputs(r, outer, inner);
    mr__run_row_words(r);
    for (int p = 0; p < r->low->n_pass; p++) {
        const mr_pass *pass = mr__schedule_pass(r->s, p, &more, &room);

        pass_begin(r, pass);
        mr__run_rows(r, p, outer, inner);
        pass_blocks(r, pass, n_blocks, inner);
        if (pass->folds)
            pass_finish(r, pass, n_blocks, inner);
    }
    mr__run_row_outputs(r);
}

void
mr__run_passes(mr_run *r, int64_t tile)
{
    int64_t outer, inner;

    r->side = r->s->g.twin_dim < 0 ? MR_SIDE_NONE : MR_SIDE_LOWER;
    mr__run_tile(r, tile, &outer, &inner);
    if (r->s->g.strategy == MR_RUN_LONG)
        outer = 1;
    passes_all(r, outer, inner);
    if (r->side == MR_SIDE_NONE)
        return;
    mr__run_twin(r);
    passes_all(r, outer, inner);
}

/* ---- split rows
 * --------------------------------------------------------------------- */

/* Scratch: for each tile the finished reductions (16 bytes a row and fold),
 * then for each piece of each tile the partial ones of the round. */

static char *
state_at(const mr_run *r, void *scratch, int64_t tile, int fold)
{
    int64_t width = mr__tile_rows(&r->s->g);

    return (char *)scratch + tile * (int64_t)mr__state_bytes(r->low, width) +
           fold * width * 16;
}

static int64_t
row_pieces(const mr_run *r)
{
    return mr__row_blocks(r->s->g.points) * r->s->g.parts;
}

typedef struct partial {
    char *values;
    uint32_t *indices;
} partial;

static partial
partial_at(const mr_run *r, void *scratch, int64_t tile, int64_t b, int fold)
{
    int64_t width = mr__tile_rows(&r->s->g);
    int64_t pieces = row_pieces(r);
    char *at = (char *)scratch +
               r->s->g.n_tiles * (int64_t)mr__state_bytes(r->low, width) +
               (tile * pieces + b) * (int64_t)mr__partial_bytes(r->low, width);
    char *indices = at + r->low->n_fold * width * 16;

    return (partial){at + fold * width * 16,
                     (uint32_t *)(void *)(indices + fold * width * 4)};
}

/* Go to a tile in round p: the reductions of earlier rounds and what follows
 * from them are there. */
static void
split_enter(mr_run *r, void *scratch, int64_t tile, int p, int64_t outer,
            int64_t inner)
{
    mr__run_row_inputs(r, outer, inner);
    for (int q = 0; q <= p; q++) {
        int fold = 0;

        for (int i = 0; q > 0 && i < r->low->n_step; i++) {
            const mr_step *t = &r->low->step[i];

            if (!mr__step_folds(t))
                continue;
            if (r->low->phase[t->dst] == q) {
                memcpy(mr__at_row(r, t->dst), state_at(r, scratch, tile, fold),
                       mr__reg_size(r, t->dst) * (size_t)r->rows);
                mr__run_publish(r, t->dst, outer, inner);
            }
            fold++;
        }
        mr__run_rows(r, q, outer, inner);
    }
}

static void
split_leave(mr_run *r, void *scratch, int64_t tile, int p)
{
    int fold = 0;

    for (int i = 0; i < r->low->n_step; i++) {
        const mr_step *t = &r->low->step[i];

        if (!mr__step_folds(t))
            continue;
        if (r->low->phase[t->dst] == p + 1)
            memcpy(state_at(r, scratch, tile, fold), mr__at_row(r, t->dst),
                   mr__reg_size(r, t->dst) * (size_t)r->rows);
        fold++;
    }
}

/* Where a unit of split rows is. */
typedef struct split {
    const mr_pass *pass;
    void *scratch;
    int64_t tile, inner;
} split;

/* The part of a block that is gone over as the i-th: one after the other have
 * rows that are neighbours. */
static int
part_at(int i, int parts)
{
    return (int)leaf_lane(i) * parts / MR_LANES;
}

static void
split_piece(mr_run *r, const split *s, int64_t i)
{
    int parts = r->s->g.parts, part = part_at((int)(i % parts), parts);
    int64_t b = i / parts, piece = b * parts + part;
    int64_t n = mr__min(MR_RED_BLOCK, r->s->g.points - b * MR_RED_BLOCK);
    _Alignas(64) char one[16];
    int fold = 0;

    piece_run(r, s->pass, b, part, parts, s->inner, true);
    for (int k = 0; k < s->pass->n; k++) {
        const mr_step *t = &r->low->step[s->pass->step[k]];
        partial to = partial_at(r, s->scratch, s->tile, piece, fold);
        const void *acc = mr__at_lanes(r, t->dst);

        if (!mr__step_folds(t))
            continue;
        fold++;
        if (t->kind == MR_STEP_FOLD)
            acc = fold_block_done(r, t, n, one);
        else
            memcpy(to.indices, mr__at_blocks(r, t->dst),
                   sizeof(uint32_t) * (size_t)r->rows);
        memcpy(to.values, acc, mr__acc_size(t) * (size_t)r->rows);
    }
}

/* The same of blocks that are folded at once. */
static void
split_blocks(const mr_run *r, const split *s, int64_t b, int64_t n)
{
    const mr_step *t = &r->low->step[s->pass->step[0]];
    _Alignas(64) char some[MOST_AT_ONCE * 16];
    int64_t size = (int64_t)mr__acc_size(t);

    blocks_fold(r, t, r->in[t->arg[0]], b, n, some);
    for (int64_t i = 0; i < n; i++)
        acc_copy(partial_at(r, s->scratch, s->tile, b + i, 0).values,
                 some + i * size, size);
}

/* ---- rows whose words are a stream
 * --------------------------------------------------------------------- */

/* Words of a row's upper half: [from, have) of them are kept, behind a block
 * of the lower half's. */
typedef struct kept {
    int64_t from, have;
} kept;

/* Room for n more; what comes before word `next` is done with. */
static void
kept_room(mr_run *r, kept *k, int64_t next, int64_t n)
{
    int64_t from = mr__min(next, k->have);

    if (k->have + n - k->from <= MR_KEPT_BLOCKS * MR_RED_BLOCK)
        return;
    for (uint32_t m = r->low->drawn; m != 0; m &= m - 1) {
        char *at = mr__at_own(r, __builtin_ctz(m)) + 4 * MR_RED_BLOCK;

        memmove(at, at + (from - k->from) * 4, (size_t)(k->have - from) * 4);
    }
    k->from = from;
}

/* Words [first, first + n) of each draw, made alone. */
static void
words_alone(mr_run *r, int64_t place, int64_t first, int64_t n)
{
    for (uint32_t m = n > 0 ? r->low->drawn : 0; m != 0; m &= m - 1) {
        int i = __builtin_ctz(m);
        mr_draw_tile t = {r->drawn[i] + first * 4, 0, 4, 1, n};

        mr__draw_rows(&r->l->in[i], 4, mr__at_own(r, i) + place * 4, &t);
    }
}

/* All words of block b, and those as far into the upper half. */
static void
words_of_pair(mr_run *r, kept *k, int64_t b)
{
    int64_t first = b * MR_RED_BLOCK, n = r->s->g.points;
    int64_t pairs = mr__min(MR_RED_BLOCK, n / 2 - first);
    int64_t all = mr__min(MR_RED_BLOCK, n - first);

    pairs = pairs < 0 ? 0 : pairs;
    for (uint32_t m = r->low->drawn; m != 0; m &= m - 1) {
        int i = __builtin_ctz(m);
        mr_draw_tile t = {r->drawn[i] + first * 4, 0, 4, 1, pairs};
        char *own = mr__at_own(r, i);

        mr__draw_twins(&r->l->in[i], own,
                       own + (MR_RED_BLOCK + k->have - k->from) * 4, &t, NULL);
    }
    words_alone(r, pairs, first + pairs, all - pairs);
    k->have += pairs;
}

/* The block, whose words are `place` words into what each draw has. */
static void
block_at_hand(mr_run *r, const split *s, int64_t b, int64_t place)
{
    r->at_hand = true;
    r->words_from = b * MR_RED_BLOCK;
    for (uint32_t m = r->low->drawn; m != 0; m &= m - 1) {
        int i = __builtin_ctz(m);

        r->words[i] = mr__at_own(r, i) + place * 4;
    }
    split_piece(r, s, b);
}

/* Blocks [begin, end) of the lower half, and those of the upper one that begin
 * as far into it.  Halves and blocks need not begin together: what the last of
 * these lacks is made alone. */
static void
split_pairs(mr_run *r, const split *s, int64_t begin, int64_t end)
{
    int64_t n = r->s->g.points, upper = mr__upper_half(&r->s->g);
    int64_t next = (upper + begin * MR_RED_BLOCK - 1) / MR_RED_BLOCK + 1;
    kept k = {upper + begin * MR_RED_BLOCK, upper + begin * MR_RED_BLOCK};

    for (int64_t b = begin; b <= end; b++) {
        int64_t wanted = (next + 1) * MR_RED_BLOCK;

        if (b < end) {
            kept_room(r, &k, next * MR_RED_BLOCK, MR_RED_BLOCK);
            words_of_pair(r, &k, b);
            block_at_hand(r, s, b, 0);
        } else if (next * MR_RED_BLOCK < k.have) {
            wanted = mr__min(wanted, n) - k.have;
            kept_room(r, &k, next * MR_RED_BLOCK, wanted);
            words_alone(r, MR_RED_BLOCK + k.have - k.from, k.have, wanted);
            k.have += wanted;
        }
        for (; next * MR_RED_BLOCK < n &&
               mr__min((next + 1) * MR_RED_BLOCK, n) <= k.have;
             next++)
            block_at_hand(r, s, next, (next + 1) * MR_RED_BLOCK - k.from);
    }
    r->at_hand = false;
}

void
mr__run_split(mr_run *r, void *scratch, int p, int64_t tile, int64_t begin,
              int64_t end)
{
    mr_pass_room room;
    mr_pass more;
    const mr_pass *pass = mr__schedule_pass(r->s, p, &more, &room);
    split s = {.pass = pass, .scratch = scratch, .tile = tile};
    int64_t outer;

    mr__run_tile(r, tile, &outer, &s.inner);
    if (r->s->g.strategy == MR_RUN_LONG)
        outer = 1;
    pass_begin(r, pass);
    split_enter(r, scratch, tile, p, outer, s.inner);
    if (r->s->g.paired) {
        split_pairs(r, &s, begin, end);
        return;
    }
    for (int64_t b = begin, m = 1; b < end; b += m) {
        if (!takes_blocks(r, pass)) {
            split_piece(r, &s, b);
            continue;
        }
        m = blocks_of_call(r, b, end);
        split_blocks(r, &s, b, m);
    }
}

/* One fold of all pieces of a tile. */
static void
fold_join(mr_run *r, const mr_step *t, void *scratch, int64_t tile, int fold)
{
    int64_t pieces = row_pieces(r);
    uint32_t *index = (uint32_t *)(void *)mr__at_blocks(r, t->dst);
    int64_t b = 0, step = (int64_t)mr__partial_bytes(r->low, 1);
    counter c = counter_of(r, t);

    for (; t->kind == MR_STEP_FOLD && mr__tile_rows(&r->s->g) == 1 &&
           b + MOST_AT_ONCE <= pieces;
         b += MOST_AT_ONCE)
        counter_push_some(&c, b, MOST_AT_ONCE,
                          partial_at(r, scratch, tile, b, fold).values, step);
    for (; b < pieces; b++) {
        partial from = partial_at(r, scratch, tile, b, fold);

        if (t->kind == MR_STEP_FOLD) {
            counter_push(&c, b, from.values);
        } else if (b == 0) {
            memcpy(mr__at_lanes(r, t->dst), from.values,
                   mr__acc_size(t) * (size_t)r->rows);
            memcpy(index, from.indices, sizeof *index * (size_t)r->rows);
        } else {
            t->fn.arg_fns->merge(mr__at_lanes(r, t->dst), index, from.values,
                                 from.indices, r->rows);
        }
    }
}

void
mr__run_join(mr_run *r, void *scratch, int p, bool last, int64_t tile)
{
    mr_pass_room room;
    mr_pass more;
    const mr_pass *pass = mr__schedule_pass(r->s, p, &more, &room);
    int64_t outer, inner;
    int fold = 0;

    mr__run_tile(r, tile, &outer, &inner);
    if (r->s->g.strategy == MR_RUN_LONG)
        outer = 1;
    pass_begin(r, pass);
    split_enter(r, scratch, tile, p, outer, inner);
    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &r->low->step[pass->step[i]];

        if (mr__step_folds(t))
            fold_join(r, t, scratch, tile, fold++);
    }
    pass_finish(r, pass, row_pieces(r), inner);
    split_leave(r, scratch, tile, p);
    if (!last)
        return;
    for (p++; p < r->low->n_pass; p++)
        mr__run_rows(r, p, outer, inner);
    mr__run_row_outputs(r);
}
