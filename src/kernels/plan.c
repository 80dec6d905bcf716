/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c -- how a launch is run: strategy, tiles, units.
 *
 * Tiles are chosen so that what is alive fits the first-level cache (and the
 * frame, which has about its size); units so that one takes some tens of
 * microseconds.  Nothing that is chosen here changes a result, and nothing but
 * how many rows of a fold make a tile depends on the number of threads.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/integers.h"
#include "base/pool.h"
#include "kernels/native_make.h"
#include "kernels/ready.h"

#define UNIT_NANOSECONDS  30000
#define MAX_ROWS_OF_TILE  128
#define LANES_BYTES       (16 * 1024)  /* of all lanes of a tile of columns */
#define PANEL_BYTES       (20 * 1024)  /* the same, lane by lane */
#define FOLDS_LEAST       (512 * 1024) /* bytes of rows that only folds read, */
#define FOLDS_MOST        (2 * 1024 * 1024)
#define FOLDS_SHARE       4           /* as many such tiles for a thread */
#define FOLDS_ROWS        2048        /* rows of such a tile */
#define FOLDS_AGAIN_BYTES (24 * 1024) /* the same, several times */
#define LONG_TILES        32          /* the fewest, of long rows */
#define ALONE_POINTS      512         /* a row of several passes: a tile */
#define SHORT_COLUMNS     32          /* all lanes at once */
#define LONG_COLUMNS      256
#define STREAM_BYTES      (16LL << 20) /* outputs from this on skip the caches */
#define HUGE_CACHE        (128LL << 20) /* but where the last cache is this: */
#define HUGE_STREAM_BYTES (80LL << 20)  /* from this on, with what is read */
#define STREAM_ALL_BYTES  (32LL << 20)  /* compiled, with what is read... */
#define STREAM_COST       240           /* ...or so many picoseconds a byte */
#define TRANSPOSED_INNER  32
#define NARROW_COLUMNS    8
#define SMALL_COUNT       1024
/* Picoseconds of a random word, four times: few words are worth two threads,
 * and units of them are small, so that threads share them evenly. */
#define DRAW_COST   1600
#define DRAWN_UNITS 8 /* for one */
/* Of the lower half in a unit, where half a block of words is made alone. */
#define UNEVEN_BLOCKS 8
#define PARTED_SHARE  4 /* units for each thread: fewer are split */
#define MOST_PARTS    (1 << MR_PART_LEVELS)

/* ---- cost
 * ------------------------------------------------------------------------ */

/* Picoseconds for one element of four bytes. */
static int64_t
k_cost(int k, mr_dtype dtype)
{
    int64_t cost = 60;

    if (k >= MR_K_EXPM1 && k <= MR_K_SIGMOID)
        cost = 700;
    if (k == MR_K_EXP || k == MR_K_ERF || k == MR_K_DIVIDE || k == MR_K_SQRT)
        cost = 300;
    if (k == MR_K_FLOOR_DIVIDE || k == MR_K_REMAINDER || k == MR_K_POWER ||
        k == MR_K_ARCTAN2 || k == MR_K_LOGADDEXP)
        cost = 3000;
    if (dtype == MR_FLOAT64 || dtype == MR_COMPLEX64)
        cost *= 2;
    if (dtype == MR_COMPLEX128)
        cost *= 4;
    return cost;
}

static int64_t
point_cost(const mr_block_code *c)
{
    int64_t cost = 50;

    for (int i = 0; i < c->n_inst; i++)
        cost += k_cost(c->inst[i].k, (mr_dtype)c->reg_dtype[c->inst[i].arg[0]]);
    for (int i = 0; i < c->n_indices; i++)
        for (int k = 0; k < c->indices[i].n_inst; k++) {
            const mr_inst *in = &c->indices[i].inst[k];

            cost += k_cost(in->k, (mr_dtype)c->indices[i].dtype[in->arg[0]]);
        }
    for (int i = 0; i < c->n_in; i++)
        cost += c->source != NULL && c->source[i].kind == MR_FROM_DRAW
                    ? DRAW_COST
                    : 40 * (int64_t)mr__elem_size((mr_dtype)c->reg_dtype[i]);
    for (int i = 0; i < c->n_out; i++) {
        if (!c->out[i].per_row)
            cost += 60 * (int64_t)mr__elem_size(
                             (mr_dtype)c->reg_dtype[c->out[i].reg]);
    }
    return cost;
}

/* How many pieces of `points` make one unit: at least 1. */
static int64_t
pieces_of_unit(int64_t points, int64_t cost)
{
    int64_t piece = points * cost / 1000 + 50;

    return piece >= UNIT_NANOSECONDS ? 1 : UNIT_NANOSECONDS / piece;
}

/* As many of n, and no more, that all pieces are alike and their number is
 * even: two threads end at the same time. */
static int64_t
evenly(int64_t most, int64_t n)
{
    int64_t pieces;

    if (most < 1 || most >= n)
        return most;
    pieces = (n + most - 1) / most;
    pieces += pieces & 1;
    return (n + pieces - 1) / pieces;
}

/* ---- one instruction on contiguous memory
 * --------------------------------------- */

static bool
is_contiguous(const mr_block_launch *l, const mr_block_io *io, size_t size)
{
    return l->n_kept == 0 || io->stride[0] == (int64_t)size;
}

static bool
is_one(const mr_block_code *c, const mr_block_launch *l)
{
    if (c->n_inst != 1 || c->n_out != 1 || l->n_red != 0 || l->n_kept > 1 ||
        c->source != NULL || MR_K_IS_REDUCTION(c->inst[0].k) ||
        c->out[0].reg != c->inst[0].dst)
        return false;
    for (int i = 0; i < c->n_in; i++) {
        if (!is_contiguous(l, &l->in[i],
                           mr__elem_size((mr_dtype)c->reg_dtype[i])) &&
            l->in[i].stride[0] != 0)
            return false;
    }
    return is_contiguous(l, &l->out[0],
                         mr__elem_size((mr_dtype)c->reg_dtype[c->out[0].reg]));
}

static bool
wants_stream(const mr_block_code *c, const mr_block_launch *l, int64_t n)
{
    int64_t bytes = 0;

    for (int o = 0; o < c->n_out; o++) {
        if (!c->out[o].per_row)
            bytes += n * (int64_t)mr__elem_size(
                             (mr_dtype)c->reg_dtype[c->out[o].reg]);
        for (int i = 0; i < c->n_in; i++) {
            if (l->in[i].data == l->out[o].data)
                return false;
        }
    }
    return bytes >= STREAM_BYTES;
}

/* Set before main, by the processor alone. */
static bool cache_is_huge;

__attribute__((constructor)) static void
measure_cache(void)
{
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache_is_huge = sysconf(_SC_LEVEL3_CACHE_SIZE) >= HUGE_CACHE;
#endif
}

/* A huge last cache (480 MB of a server's Xeon, two of its cores) keeps results
 * for who reads them next: float32 to float16 of 8M 0.96 of the time stored
 * past it, with a sum of the result 0.75; added 8M (96 MB in all) 1.03 and
 * 0.85, 32M 1.65.  Compiled code is asked elsewhere: GELU of 8M takes 1.23 of
 * the time so (0.82 with a sum of the result). */
static bool
stays_cached(const mr_block_code *c, const mr_block_launch *l, int64_t n)
{
    int64_t bytes = 0;

    for (int o = 0; o < c->n_out; o++)
        bytes +=
            n * (int64_t)mr__elem_size((mr_dtype)c->reg_dtype[c->out[o].reg]);
    for (int i = 0; i < c->n_in; i++)
        if (l->n_kept == 0 || l->in[i].stride[l->n_kept - 1] != 0)
            bytes += n * (int64_t)mr__elem_size((mr_dtype)c->reg_dtype[i]);
    return cache_is_huge && bytes < HUGE_STREAM_BYTES;
}

static mr_block_plan
plan_one(const mr_block_code *c, const mr_block_launch *l)
{
    int64_t n = l->n_kept > 0 ? l->dim[0] : 1, cost = point_cost(c), chunk;
    mr_block_plan p = {.strategy = MR_RUN_ONE, .n_rounds = 1};

    if (n <= SMALL_COUNT) { /* without a division */
        p.n_units = 1;
        p.unit_cost = (n * cost) >> 10;
        p.chunk = SMALL_COUNT;
        return p;
    }
    chunk = pieces_of_unit(1024, cost) * 1024;
    if (wants_stream(c, l, n) && !stays_cached(c, l, n))
        p.strategy |= MR_PLAN_STREAM;
    p.n_units = (n + chunk - 1) / chunk;
    p.unit_cost = (n < chunk ? n : chunk) * cost / 1000;
    p.chunk = chunk;
    return p;
}

/* ---- tiles
 * ------------------------------------------------------------------------- */

/* The dim along which an input is contiguous that is not contiguous along the
 * last one; -1 if there is none. */
static int
transposed_dim(const mr_lowered *low, const mr_block_launch *l, int n)
{
    for (int i = 0; i < low->n_in; i++) {
        int64_t size = (int64_t)mr__elem_size((mr_dtype)low->dtype[i]);

        if (n < 2 || l->in[i].stride[n - 1] == size ||
            l->in[i].stride[n - 1] == 0)
            continue;
        for (int d = n - 2; d >= 0; d--) {
            if (l->in[i].stride[d] == size)
                return d;
        }
    }
    return -1;
}

static void
geometry_map(mr_geometry *g, const mr_lowered *low, const mr_block_launch *l,
             int64_t tile)
{
    int n = l->n_kept + l->n_red, d = transposed_dim(low, l, n);
    int64_t inner_n = n > 0 ? l->dim[n - 1] : 1;
    int64_t inner = inner_n < tile ? inner_n : tile;

    if (d >= 0 && inner > TRANSPOSED_INNER)
        inner = TRANSPOSED_INNER;
    inner += inner == 0;
    mr__geometry_make(g, MR_RUN_MAP, low, l, d >= 0 ? d : n - 2, tile / inner,
                      inner);
}

/* Are the columns of all inputs of values one piece of memory, row after row?
 */
static bool
columns_flat(const mr_lowered *low, const mr_block_launch *l)
{
    int kept = l->n_kept - 1, point = l->n_kept + l->n_red - 1;

    if ((low->gathered | low->drawn) != 0)
        return false;
    for (int i = 0; i < low->n_in; i++) {
        int64_t size = (int64_t)mr__elem_size((mr_dtype)low->dtype[i]);

        if (!low->row[i] && !((low->splat_in >> i) & 1) &&
            (l->in[i].stride[kept] != size ||
             l->in[i].stride[point] != size * l->dim[kept]))
            return false;
    }
    return l->n_red == 1;
}

/* Do the rows' neighbours lie closer together than a row's own points? */
static bool
wants_columns(const mr_lowered *low, const mr_block_launch *l)
{
    int kept = l->n_kept - 1, point = l->n_kept + l->n_red - 1, votes = 0;

    if (kept < 0 || l->n_red == 0 || low->drawn != 0)
        return false;
    if (l->dim[kept] < NARROW_COLUMNS &&
        (l->dim[point] < LONG_COLUMNS || !columns_flat(low, l)))
        return false;
    for (int i = 0; i < low->n_in; i++) {
        int64_t k = llabs(l->in[i].stride[kept]);
        int64_t p = llabs(l->in[i].stride[point]);

        if (!low->row[i] && k != 0 && p != 0)
            votes += k < p ? 1 : -1;
    }
    return votes > 0;
}

/* What the folds of a program are, for panels of columns. */
typedef struct fold_facts {
    int64_t bytes; /* accumulated values of one lane and row, all folds */
    bool args;     /* argmax and argmin, which want points in order */
    bool exact;    /* absent lanes may be left out */
} fold_facts;

static fold_facts
folds_of(const mr_lowered *low)
{
    fold_facts f = {0, false, true};

    for (int i = 0; i < low->n_step; i++) {
        const mr_step *t = &low->step[i];

        f.args |= t->kind == MR_STEP_ARG;
        if (t->kind != MR_STEP_FOLD)
            continue;
        f.bytes += (int64_t)mr__elem_size((mr_dtype)t->acc);
        f.exact &= t->exact_lanes;
    }
    return f;
}

static int64_t
whole_vectors(int64_t width, int64_t tile)
{
    width = width > tile ? tile : width;
    return width < 16 ? 16 : width / 16 * 16;
}

/* Lane by lane: one lane and the counters of lanes and blocks are alive.  A
 * panel is as long a piece of each row as there is room for, but there are two
 * at least. */
static int64_t
panel_width(const mr_block_launch *l, int64_t points, fold_facts f,
            int64_t tile)
{
    int64_t levels = MR_LANE_LEVELS + mr__block_levels(points) + 1;
    int64_t n = l->dim[l->n_kept - 1], width = 512;

    while (width > 64 &&
           (width > tile || width * f.bytes * levels > PANEL_BYTES))
        width /= 2;
    for (int i = 0; i < l->n_kept - 1; i++)
        n *= l->dim[i];
    while (width > 128 && n <= width)
        width /= 2;
    return width;
}

static void
geometry_columns(mr_geometry *g, const mr_lowered *low,
                 const mr_block_launch *l, int64_t tile)
{
    fold_facts f = folds_of(low);
    int64_t lanes = MR_LANES, points = 1, width = 512;
    int64_t columns = l->dim[l->n_kept - 1];
    bool flat = false, by_lanes = false;

    for (int i = l->n_kept; i < l->n_kept + l->n_red; i++)
        points *= l->dim[i];
    if (f.exact && points < lanes)
        lanes = points + (points == 0);
    if (f.bytes > 0) {
        width = LANES_BYTES / (f.bytes * lanes);
        flat = columns <= width && columns <= tile && columns_flat(low, l);
        by_lanes = !flat && !f.args && l->n_red == 1 && points > SHORT_COLUMNS;
        if (by_lanes)
            width = panel_width(l, points, f, tile);
        else if (flat)
            width = columns;
    }
    if (!flat)
        width = whole_vectors(width, tile);
    width = width > 512 ? 512 : width;
    mr__geometry_make(
        g, MR_RUN_COLS, low, l, -1,
        by_lanes && tile == MR_RED_BLOCK ? MR_LANES : tile / width, width);
    g->flat = flat;
    g->by_lanes = by_lanes;
    g->hop = by_lanes ? MR_LANES : 1;
}

static void
geometry_rows(mr_geometry *g, const mr_lowered *low, const mr_block_launch *l,
              int64_t tile)
{
    int64_t points = 1, rows;

    for (int i = l->n_kept; i < l->n_kept + l->n_red; i++)
        points *= l->dim[i];
    if (points > tile) {
        mr__geometry_make(g, MR_RUN_LONG, low, l, -1, 1, tile);
        return;
    }
    rows = points > 0 ? tile / points : MAX_ROWS_OF_TILE;
    rows = rows > MAX_ROWS_OF_TILE ? MAX_ROWS_OF_TILE : rows;
    if (points >= ALONE_POINTS && low->n_pass > 1)
        rows = 1;
    mr__geometry_make(g, MR_RUN_ROWS, low, l, -1, rows, points);
}

static void
geometry_of(mr_geometry *g, const mr_lowered *low, const mr_block_launch *l,
            int64_t tile)
{
    if (!low->rows)
        geometry_map(g, low, l, tile);
    else if (wants_columns(low, l))
        geometry_columns(g, low, l, tile);
    else
        geometry_rows(g, low, l, tile);
}

static void
schedule_of(mr_block_room *room, const mr_block_launch *l, int64_t tile)
{
    mr_block_ready *b = &room->ready;
    mr_geometry g;

    geometry_of(&g, &b->low, l, tile);
    mr__schedule_make(&b->schedule, &b->low, l, &g, &room->schedule);
    mr__frame_make(&b->frame, &b->schedule, &room->frame);
}

/* The one input of values, if there is just one; else -1. */
static int
only_values(const mr_lowered *low)
{
    int only = -1;

    for (int i = 0; i < low->n_in; i++) {
        if (low->row[i] || ((low->splat_in | low->index_in) >> i & 1))
            continue;
        if (only >= 0)
            return -1;
        only = i;
    }
    return only;
}

/* Are there but steps of rows and folds of this input? */
static bool
only_folded(const mr_lowered *low, int values, mr_strategy was)
{
    for (int i = 0; i < low->n_step; i++) {
        const mr_step *t = &low->step[i];

        if (t->row)
            continue;
        if (t->kind != MR_STEP_FOLD)
            return false;
        if (was == MR_RUN_LONG && (t->near != NULL || t->arg[0] != values))
            return false;
    }
    return true;
}

/* Rows that folds alone read take no room: as many to a tile as make a tile's
 * own cost small, and fit the first-level cache where they are passed over
 * again.  A tile costs 230 ns in which nothing is read, as long as 11 to 22 KB
 * take: 4000 rows of 1000 float32 on two threads 94 us by 512 KB, 90 by 1 MB,
 * 88 by 2 MB; but each thread is to have some tiles. */
static int64_t
rows_of_folds(const mr_lowered *low, int64_t row_bytes, int64_t all)
{
    int64_t bytes = all * row_bytes / (FOLDS_SHARE * mr__pool_threads()), rows;

    bytes = bytes < FOLDS_LEAST ? FOLDS_LEAST : bytes;
    bytes = bytes > FOLDS_MOST ? FOLDS_MOST : bytes;
    if (low->n_fold > 1)
        bytes = FOLDS_AGAIN_BYTES;
    rows = row_bytes > 0 ? bytes / row_bytes : FOLDS_ROWS;
    return rows > FOLDS_ROWS ? FOLDS_ROWS : rows;
}

/* Tiles of so many rows, if the frame has room for their results. */
static bool
widen_to(mr_block_room *room, const mr_block_launch *l, int64_t rows)
{
    mr_block_ready *b = &room->ready;
    int64_t points = b->schedule.g.points;
    mr_geometry g;

    mr__geometry_make(&g, MR_RUN_ROWS, &b->low, l, -1, rows, points);
    mr__schedule_make(&b->schedule, &b->low, l, &g, &room->schedule);
    mr__frame_make(&b->frame, &b->schedule, &room->frame);
    return mr__frame_fits(&b->frame);
}

/* The same of rows of some blocks each, if there are enough of them (a tile's
 * own cost is 140 ns, reading two blocks of float32 takes 400). */
static void
widen_folds(mr_block_room *room, const mr_block_launch *l)
{
    mr_block_ready *b = &room->ready;
    const mr_lowered *low = &b->low;
    mr_geometry was = b->schedule.g;
    int64_t rows, all = 1;
    int values = only_values(low);

    if ((was.strategy != MR_RUN_ROWS && was.strategy != MR_RUN_LONG) ||
        values < 0 ||
        ((b->schedule.direct_in | b->schedule.rowwise_in) >> values & 1) == 0 ||
        !only_folded(low, values, was.strategy))
        return;
    for (int i = 0; i < l->n_kept; i++)
        all *= l->dim[i];
    rows = rows_of_folds(
        low, was.points * (int64_t)mr__elem_size((mr_dtype)low->dtype[values]),
        all);
    if (was.strategy == MR_RUN_LONG && rows > all / LONG_TILES)
        rows = all / LONG_TILES;
    if (l->n_kept > 0)
        rows = evenly(rows, l->dim[l->n_kept - 1]);
    if (rows <= was.outer)
        return;
    for (; rows > was.outer; rows /= 2)
        if (widen_to(room, l, rows))
            return;
    mr__schedule_make(&b->schedule, low, l, &was, &room->schedule);
    mr__frame_make(&b->frame, &b->schedule, &room->frame);
}

/* The largest tile of the sizes tried that fits the frame.  A tile of a whole
 * block is worth it when nothing is stored in between; one of a whole row when
 * the row is passed over several times. */
static void
schedule_fit(mr_block_room *room, const mr_block_launch *l)
{
    const mr_block_ready *b = &room->ready;
    int64_t tile = 4096 / b->low.max_size;

    tile = tile < 256 ? 256 : tile > 2048 ? 2048 : tile;
    if (b->low.drawn != 0) /* what a tile costs beside its points */
        tile = 2048;
    for (int64_t big = MR_RED_BLOCK; big > tile; big /= 2) {
        schedule_of(room, l, big);
        if (mr__frame_fits(&b->frame) &&
            (b->schedule.n_slot == 0 ||
             (b->low.n_pass > 1 && b->schedule.g.strategy == MR_RUN_ROWS))) {
            widen_folds(room, l);
            return;
        }
    }
    for (;; tile /= 2) {
        schedule_of(room, l, tile);
        if (tile <= 64 || mr__frame_fits(&b->frame))
            return;
    }
}

/* ---- units
 * ---------------------------------------------------------------------------
 */

/* Passes that have something to do; each is a round of a split row. */
static int
n_rounds(const mr_schedule *s)
{
    int n = mr__schedule_kept(s);

    if (s->low->n_pass > MR_PASSES_KEPT)
        return s->low->n_pass;
    while (n > 1 && s->pass[n - 1].n == 0)
        n--;
    return n;
}

/* Pieces of a block of columns that go lane by lane, where there are few
 * panels: as many as give each thread some, and leave each a unit's work.  Sums
 * down 4000 x 1000 are two panels: on 16 threads they took 0.27 ms, as on two.
 */
static int
parts_of_block(const mr_geometry *g, int64_t n_units, int64_t cost)
{
    int64_t threads = mr__pool_threads();
    int64_t points = g->points < MR_RED_BLOCK ? g->points : MR_RED_BLOCK;
    int64_t work = points * g->inner * cost / 1000;
    int parts = 1;

    if (!g->by_lanes || g->points < MR_SPLIT_POINTS || threads == 1 ||
        n_units >= PARTED_SHARE * threads)
        return 1;
    while (parts < MOST_PARTS && n_units * parts < 2 * PARTED_SHARE * threads &&
           work / (2 * parts) >= UNIT_NANOSECONDS)
        parts *= 2;
    return parts;
}

/* Units from which on rows are not split: each thread has some. */
static int64_t
enough_units(void)
{
    int64_t n = 2 * (int64_t)mr__pool_threads();

    return n < 16 ? 16 : n;
}

/* Scratch is asked for before it is known which operands share memory, which
 * may make tiles smaller, and so units more and parts fewer: enough for any. */
static void
plan_split(mr_block_plan *p, mr_schedule *s, int64_t cost)
{
    mr_geometry *g = &s->g;
    int64_t pieces = mr__row_blocks(g->points), groups;
    int64_t width = mr__tile_rows(g);
    int64_t piece_points = MR_RED_BLOCK * width, rows = 1;
    size_t row_bytes = (size_t)s->low->n_fold * 40 + 64;

    if (g->strategy != MR_RUN_LONG && g->strategy != MR_RUN_COLS)
        return;
    if (!g->paired && (p->n_units >= enough_units() || s->low->n_fold == 0))
        return;
    g->parts = parts_of_block(g, p->n_units, cost);
    pieces *= g->parts;
    piece_points /= g->parts;
    if (!g->paired && (pieces < 4 || pieces * piece_points * cost / 1000 <
                                         2 * UNIT_NANOSECONDS)) {
        g->parts = 1;
        return;
    }
    if (g->paired)
        piece_points *= 2;
    g->split_pieces = pieces_of_unit(piece_points, cost);
    if (g->paired && g->points % (2 * MR_RED_BLOCK) != 0 &&
        g->split_pieces < UNEVEN_BLOCKS)
        g->split_pieces = UNEVEN_BLOCKS;
    if (!g->paired)
        g->split_pieces = evenly(g->split_pieces, mr__split_pieces(g));
    groups = (mr__split_pieces(g) + g->split_pieces - 1) / g->split_pieces;
    for (int i = 0; i < s->l->n_kept; i++)
        rows *= s->l->dim[i];
    if (g->strategy == MR_RUN_COLS) { /* whole tiles; flat ones are narrow */
        rows = g->n_tiles * (width < 16 ? 16 : width);
        row_bytes = (size_t)s->low->n_fold * 20 + 4;
    }
    p->n_rounds = n_rounds(s);
    p->n_units = g->n_tiles * groups;
    p->unit_cost = g->split_pieces * piece_points * cost / 1000;
    p->scratch_bytes = (size_t)(pieces + 1) * (size_t)rows * row_bytes;
}

size_t
mr__partial_bytes(const mr_lowered *low, int64_t width)
{
    return mr__whole_lines((size_t)(width * low->n_fold) *
                           (16 + sizeof(uint32_t)));
}

size_t
mr__state_bytes(const mr_lowered *low, int64_t width)
{
    return mr__whole_lines((size_t)(width * low->n_fold) * 16);
}

/* Units of the tiles of a schedule. */
static void
plan_tiles(mr_block_ready *b)
{
    mr_geometry *g = &b->schedule.g;
    mr_block_plan *p = &b->plan;
    int64_t cost = point_cost(b->code), tile_points = g->outer * g->inner;

    if (g->twin_dim >= 0) /* a tile and its twin */
        tile_points *= 2;

    if (g->strategy == MR_RUN_LONG || g->strategy == MR_RUN_COLS)
        tile_points = g->points * mr__tile_rows(g) * b->low.n_pass;
    p->strategy = (int32_t)g->strategy;
    if (g->strategy == MR_RUN_MAP &&
        wants_stream(b->code, b->schedule.l, g->n_tiles * tile_points) &&
        !stays_cached(b->code, b->schedule.l, g->n_tiles * tile_points))
        p->strategy |= MR_PLAN_STREAM;
    g->per_unit = pieces_of_unit(tile_points, cost);
    if (b->low.drawn != 0)
        g->per_unit = (g->per_unit + DRAWN_UNITS - 1) / DRAWN_UNITS;
    p->n_units = (g->n_tiles + g->per_unit - 1) / g->per_unit;
    p->unit_cost = (g->per_unit < g->n_tiles ? g->per_unit : g->n_tiles) *
                   tile_points * cost / 1000;
    g->split_pieces = 0;
    g->parts = 1;
    plan_split(p, &b->schedule, cost);
}

static const mr_block_ready *
ready_make(const mr_block_code *c, const mr_block_launch *l, bool careful,
           mr_block_room *room)
{
    mr_block_ready *b = &room->ready;
    int64_t points = 1, total = 1;

    b->code = c;
    b->native = NULL;
    b->plan = (mr_block_plan){.strategy = MR_RUN_NOTHING, .n_rounds = 1};
    for (int i = 0; i < l->n_kept; i++)
        total *= l->dim[i];
    if (total == 0 || c->n_out == 0)
        return b;
    if (is_one(c, l)) {
        b->plan = plan_one(c, l);
        return b;
    }
    mr__lower(c, l, mr__tier(), careful, &b->low, &room->low);
    for (int i = l->n_kept; i < l->n_kept + l->n_red; i++)
        points *= l->dim[i];
    if (points == 0 && !b->low.rows)
        return b;
    schedule_fit(room, l);
    plan_tiles(b);
    return b;
}

const mr_block_ready *
mr__block_make_ready(const mr_block_code *c, const mr_block_launch *l,
                     mr_block_room *room)
{
    return ready_make(c, l, false, room);
}

const mr_block_ready *
mr__block_make_careful(const mr_block_code *c, const mr_block_launch *l,
                       mr_block_room *room)
{
    return ready_make(c, l, true, room);
}

/* ---- pieces
 * ---------------------------------------------------------------------------
 */

static void
pieces_of_tiles(mr_block_room *room, const mr_block_launch *l, int64_t tile)
{
    mr_block_ready *b = &room->ready;
    int64_t inner = l->dim[l->n_kept - 1];
    mr_geometry g;

    inner = inner < tile ? inner : tile;
    mr__geometry_make(&g, MR_RUN_MAP, &b->low, l, l->n_kept - 2, tile / inner,
                      inner);
    g.by_rows = true;
    mr__schedule_make(&b->schedule, &b->low, l, &g, &room->schedule);
    mr__frame_make(&b->frame, &b->schedule, &room->frame);
}

const mr_block_ready *
mr__block_make_pieces(const mr_block_code *c, const mr_block_launch *l,
                      mr_block_room *room)
{
    mr_block_ready *b = &room->ready;
    int64_t tile;

    b->code = c;
    b->native = NULL;
    b->plan =
        (mr_block_plan){.n_units = 1, .strategy = MR_RUN_MAP, .n_rounds = 1};
    mr__lower(c, l, mr__tier(), false, &b->low, &room->low);
    tile = 4096 / b->low.max_size;
    tile = tile < 256 ? 256 : tile > 2048 ? 2048 : tile;
    for (;; tile /= 2) {
        pieces_of_tiles(room, l, tile);
        if (tile <= 64 || mr__frame_fits(&b->frame))
            return b;
    }
}

/* ---- for compiled code
 * -------------------------------------------------------------------------
 */

/* Nothing but the operands' memory is touched: as large a tile as units are,
 * so that a call is few instructions of a run. */
#define NATIVE_TILE 32768

static void
native_tile(mr_block_room *room, const mr_block_launch *l)
{
    mr_block_ready *b = &room->ready;
    mr_geometry g;

    geometry_map(&g, &b->low, l, NATIVE_TILE);
    mr__schedule_make(&b->schedule, &b->low, l, &g, &room->schedule);
    plan_tiles(b);
}

/* What is gathered is brought into the frame: as large a tile as fits.  Words
 * and what is read and written beside them stay in the first-level cache. */
#define DRAWN_TILE 1024

static void
native_brought(mr_block_room *room, const mr_block_launch *l)
{
    int64_t most = room->ready.low.drawn != 0 ? DRAWN_TILE : MR_RED_BLOCK;

    for (int64_t tile = most; tile >= 256; tile /= 2) {
        schedule_of(room, l, tile);
        if (mr__frame_fits(&room->ready.frame))
            break;
    }
    plan_tiles(&room->ready);
}

/* Rows are gone over once for each phase: as many at a time as stay in the
 * second-level cache with all that is read, stored in between and written, so
 * that what comes from memory is long enough a piece to be foreseen (layer_norm
 * of 8192 x 1024 float32 on one core: 5.1 ms with 32 KB, 4.1 with these). */
#define NATIVE_ROWS_BYTES (256 * 1024)

static int64_t
row_bytes(const mr_schedule *s)
{
    const mr_lowered *low = s->low;
    int64_t bytes = (int64_t)s->n_slot * low->max_size;

    for (int i = 0; i < low->n_in; i++)
        if (!low->row[i] && !((low->splat_in >> i) & 1))
            bytes += (int64_t)mr__elem_size((mr_dtype)low->dtype[i]);
    for (int o = 0; o < low->n_out; o++)
        if (!low->out_row[o])
            bytes +=
                (int64_t)mr__elem_size((mr_dtype)low->dtype[low->out_reg[o]]);
    return bytes * s->g.points;
}

/* Words of so many rows may leave the first-level cache: a tile's own cost is
 * more (dropout and sum over 1024 rows of 1024: 1.04 of what two kernels take
 * with 16 KB, 0.99 with 64). */
#define DRAWN_ROWS_BYTES (64 * 1024)

static int64_t
rows_drawn(const mr_block_ready *b, int64_t rows)
{
    int64_t n = __builtin_popcount(b->low.drawn);
    int64_t bytes = 2 * 4 * n * b->schedule.g.points;

    if (n == 0 || rows * bytes <= DRAWN_ROWS_BYTES)
        return rows;
    return DRAWN_ROWS_BYTES / bytes;
}

/* What is stored in between or brought lies in the frame: fewer rows, then. */
static mr_native *
native_rows(mr_block_room *room, const mr_block_launch *l, mr_arena *arena)
{
    mr_block_ready *b = &room->ready;
    int64_t points = b->schedule.g.points, bytes = row_bytes(&b->schedule);
    int64_t rows = NATIVE_ROWS_BYTES / (bytes > 0 ? bytes : 1);
    mr_native *native;
    mr_geometry g;

    rows = rows_drawn(b, rows);
    rows = rows < 1 ? 1 : rows > MAX_ROWS_OF_TILE ? MAX_ROWS_OF_TILE : rows;
    do {
        mr__geometry_make(&g, MR_RUN_ROWS, &b->low, l, -1, rows, points);
        mr__schedule_make(&b->schedule, &b->low, l, &g, &room->schedule);
        plan_tiles(b);
        b->schedule.words_apart = b->low.drawn != 0;
        native = mr__native_make(&b->schedule, arena);
        if (native != NULL)
            mr__frame_make(&b->frame, &b->schedule, &room->frame);
        rows /= 2;
    } while (rows > 0 && native != NULL && !mr__frame_fits(&b->frame));
    return native;
}

/* Bytes of an operand that are not the same again. */
static int64_t
io_bytes(const mr_block_launch *l, const mr_block_io *io, int dtype)
{
    int64_t bytes = (int64_t)mr__elem_size((mr_dtype)dtype);

    for (int d = 0; d < l->n_kept + l->n_red; d++)
        if (io->stride[d] != 0)
            bytes *= l->dim[d];
    return bytes;
}

/* Results that the last cache can hold with what is read are best left there,
 * unless so much is computed for each that memory takes them meanwhile. */
static bool
wants_native_stream(const mr_block_ready *b)
{
    const mr_block_code *c = b->code;
    const mr_block_launch *l = b->schedule.l;
    int64_t n = 1, out = 0, all;

    for (int d = 0; d < l->n_kept + l->n_red; d++)
        n *= l->dim[d];
    if (!wants_stream(c, l, n))
        return false;
    for (int o = 0; o < c->n_out; o++)
        if (!c->out[o].per_row)
            out += io_bytes(l, &l->out[o], c->reg_dtype[c->out[o].reg]);
    all = out;
    for (int i = 0; i < c->n_in; i++)
        all += io_bytes(l, &l->in[i], c->reg_dtype[i]);
    return all > STREAM_ALL_BYTES || n * point_cost(c) >= STREAM_COST * out;
}

/* Segments that store nothing but outputs may store them past the caches.
 * Beside words they are brought near before (mr__run_foresee). */
static void
native_stream(mr_block_ready *b, mr_native *native)
{
    if (b->schedule.g.strategy == MR_RUN_COLS || b->low.drawn != 0 ||
        !wants_native_stream(b))
        return;
    b->plan.strategy |= MR_PLAN_STREAM;
    for (int p = 0; p < native->n_pass; p++) {
        for (int i = 0; i < native->pass[p].n; i++) {
            mr_native_segment *s = &native->pass[p].segment[i];

            s->code.past = s->code.n_out > 0;
            for (int o = 0; o < s->code.n_out; o++)
                s->code.past &= s->slot[o] < 0;
        }
    }
}

static mr_code
native_keep(mr_block_room *room, const mr_block_launch *l, mr_native *native,
            mr_arena *arena, const void **ready, mr_native **segments)
{
    mr_block_ready *b = &room->ready;

    if (native == NULL)
        return MR_E_MEMORY;
    if (native->n_pass == 0)
        return MR_OK;
    mr__frame_make(&b->frame, &b->schedule, &room->frame);
    if (!mr__frame_fits(&b->frame))
        return MR_OK;
    b->native = native;
    *segments = native;
    *ready = mr__block_keep_ready(b, l, arena);
    return *ready == NULL ? MR_E_MEMORY : MR_OK;
}

mr_code
mr__block_make_native(const mr_block_code *c, const mr_block_launch *l,
                      mr_arena *arena, const void **ready, mr_native **segments)
{
    mr_block_room room;
    mr_block_ready *b = &room.ready;
    mr_native *native;

    *ready = NULL;
    *segments = NULL;
    mr__block_make_ready(c, l, &room);
    if (!mr__block_is_lowered(b) || b->schedule.g.points == 0)
        return MR_OK;
    if (b->schedule.g.strategy == MR_RUN_MAP &&
        mr__native_is_direct(&b->schedule))
        native_tile(&room, l);
    else if (b->schedule.g.strategy == MR_RUN_MAP &&
             (b->low.gathered | b->low.drawn) != 0)
        native_brought(&room, l);
    native = mr__native_make(&b->schedule, arena);
    if (native != NULL && b->schedule.g.strategy == MR_RUN_ROWS &&
        b->schedule.g.inner >= MR_NATIVE_NARROW)
        native = native_rows(&room, l, arena);
    if (native != NULL)
        native_stream(b, native);
    return native_keep(&room, l, native, arena, ready, segments);
}

mr_code
mr__block_make_native_pieces(const mr_block_code *c, const mr_block_launch *l,
                             mr_arena *arena, const void **ready,
                             mr_native **segments)
{
    mr_block_room room;
    const mr_block_ready *b = mr__block_make_pieces(c, l, &room);

    *ready = NULL;
    *segments = NULL;
    if (b->schedule.g.inner < MR_NATIVE_NARROW)
        return MR_OK;
    if (mr__native_is_direct(&b->schedule))
        pieces_of_tiles(&room, l, NATIVE_TILE);
    return native_keep(&room, l, mr__native_make(&room.ready.schedule, arena),
                       arena, ready, segments);
}

mr_block_plan
mr__block_plan(const mr_block_code *c, const mr_block_launch *l)
{
    mr_block_room room;

    return mr__block_make_ready(c, l, &room)->plan;
}
