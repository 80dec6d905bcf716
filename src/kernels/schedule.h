/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.h -- how the interpreter goes over a launch: tiles, passes, and
 * where each register lives.  Private to this folder.
 *
 * A tile is `outer` by `inner` points.  What these are depends on the
 * strategy:
 *
 *   ONE   one instruction on contiguous memory: no tiles
 *   MAP   no rows: the last two kept dims
 *   ROWS  outer: rows (the last kept dim); inner: all points of a row
 *   LONG  outer: 1; inner: a chunk of one row
 *   COLS  outer: a chunk of the points; inner: rows that lie side by side in
 *         memory (the last kept dim)
 *
 * ROWS computes everything of a tile in one go.  LONG and COLS pass over the
 * row once for each phase and compute values of earlier phases again.
 *
 * Draws of more words than a tile has (draw.h) make two tiles of one: one
 * kept dim is halved, and each tile of the lower half is followed by its twin,
 * `shift` further, for which it has made the words.  Of an odd dim, the middle
 * is a tile of its own.  LONG rows have their words at hand, or, where a row is
 * all of its stream, go over their blocks in pairs (`paired`).
 */
#ifndef MR_KERNELS_SCHEDULE_H
#define MR_KERNELS_SCHEDULE_H

#include "base/integers.h"
#include "kernels/lower.h"

typedef enum mr_strategy {
    MR_RUN_NOTHING,
    MR_RUN_ONE,
    MR_RUN_MAP,
    MR_RUN_ROWS,
    MR_RUN_LONG,
    MR_RUN_COLS
} mr_strategy;

typedef struct mr_geometry {
    mr_strategy strategy;
    int outer_dim, inner_dim; /* kept dims, or -1 */
    int n_dims;               /* kept dims: these two and the rest */
    int64_t outer_n, inner_n; /* extents of the whole */
    int64_t outer, inner;     /* extents of a tile */
    int64_t n_outer, n_inner; /* tiles along each */
    int64_t n_tiles;
    int64_t points;       /* of a row */
    int64_t per_unit;     /* tiles of one unit */
    int64_t split_pieces; /* pieces of one unit of a split row, or 0 */
    int parts;     /* pieces of a block of split rows: COLS lane by lane, 2^k */
    bool flat;     /* COLS: lanes lie one after the other */
    bool by_lanes; /* COLS: passes with folds go lane by lane */
    bool by_rows;  /* MAP: operands whose rows are contiguous stay where they
              are, and steps go row by row */
    int64_t hop;   /* points from one row of a tile to the next: COLS */
    int twin_dim;  /* the kept dim that is halved, or -1 */
    int64_t half, shift;
    bool paired; /* LONG: units have blocks of both halves of a row */
} mr_geometry;

#define MR_PASSES_KEPT 4
#define MR_CHAIN_STEPS 16

typedef struct mr_pass {
    int n, n_slot;
    uint32_t inputs;  /* read in this pass */
    uint32_t rowwise; /* of these, read where they are, but row by row: folds */
    uint32_t outputs; /* value outputs written in this pass */
    bool folds, only_folds;
    uint16_t *step; /* n, in order */
    /* Steps from here on that run as one chain: at least 1; 0 inside. */
    uint8_t *chain;
    int16_t *slot; /* of the result of each; -1 - output when it goes straight
                      there; unused for rows and all but the last of a chain */
} mr_pass;

typedef struct mr_pass_room {
    uint16_t step[MR_LOW_REGS];
    int16_t slot[MR_LOW_REGS];
    uint8_t chain[MR_LOW_REGS];
} mr_pass_room;

typedef struct mr_schedule {
    const mr_lowered *low;
    const mr_block_launch *l;
    mr_geometry g;
    int n_slot;          /* the most of any pass */
    uint32_t direct_in;  /* inputs read where they are */
    uint32_t rowwise_in; /* the same, but only row by row, for folds */
    uint32_t twin_in;    /* draws made for both halves at once */
    bool words_apart;    /* ROWS: tiles are as large as their words want it */
    uint32_t direct_out;
    uint32_t alias_out; /* outputs in the memory of an input */
    uint8_t out_pass[MR_CODE_MAX_IO];
    bool *spread; /* by register: rows' values that are wanted along the row,
                     when a tile has several rows */
    mr_pass pass[MR_PASSES_KEPT];
} mr_schedule;

typedef struct mr_schedule_room {
    bool spread[MR_LOW_REGS];
    mr_pass_room pass[MR_PASSES_KEPT];
} mr_schedule_room;

/* Rows of a tile. */
static inline int64_t
mr__tile_rows(const mr_geometry *g)
{
    return g->strategy == MR_RUN_ROWS   ? g->outer
           : g->strategy == MR_RUN_COLS ? g->inner
                                        : 1;
}

/* Does an odd dim leave a middle behind: the last tile along the inner dim? */
static inline bool
mr__has_middle(const mr_geometry *g)
{
    return g->twin_dim >= 0 && g->shift > g->half;
}

/* Bytes from an input in the frame to that of the twin. */
static inline int64_t
mr__twin_bytes(const mr_geometry *g, int64_t size)
{
    int64_t n = g->strategy == MR_RUN_LONG ? g->points : g->outer * g->inner;

    return mr__round_up(n * size, 64);
}

/* Where the upper half of a row's stream begins. */
static inline int64_t
mr__upper_half(const mr_geometry *g)
{
    return g->points - g->points / 2;
}

/* Pieces that are split among the units of a row: blocks (where they are
 * paired, those that begin in the lower half), or parts of them. */
static inline int64_t
mr__split_pieces(const mr_geometry *g)
{
    int64_t n = g->paired ? mr__upper_half(g) : g->points;

    return n > 0 ? (n + MR_RED_BLOCK - 1) / MR_RED_BLOCK * g->parts : 1;
}

/* Tiles of the given extents; outer_dim is the dim that MAP pairs with the
 * last one, or -1. */
void mr__geometry_make(mr_geometry *g, mr_strategy strategy,
                       const mr_lowered *low, const mr_block_launch *l,
                       int outer_dim, int64_t outer, int64_t inner);
/* The schedule for these tiles; g is copied. */
void mr__schedule_make(mr_schedule *s, const mr_lowered *low,
                       const mr_block_launch *l, const mr_geometry *g,
                       mr_schedule_room *room);
/* The steps of pass p; `pass` and its room are for those that are not kept. */
const mr_pass *mr__schedule_pass(const mr_schedule *s, int p, mr_pass *pass,
                                 mr_pass_room *room);
/* How many passes are kept. */
int mr__schedule_kept(const mr_schedule *s);

/* Does an operand's stride step to the neighbour in a tile, outwards and
 * inwards?  Bytes; for a reduced direction those of the last reduced dim. */
int64_t mr__stride_outer(const mr_geometry *g, const mr_block_launch *l,
                         const mr_block_io *io, int64_t size);
int64_t mr__stride_inner(const mr_geometry *g, const mr_block_launch *l,
                         const mr_block_io *io, int64_t size);

/* Are the rows of a tile contiguous in the memory of this operand? */
bool mr__rows_contiguous(const mr_geometry *g, const mr_block_launch *l,
                         const mr_block_io *io, int64_t size);

#endif
