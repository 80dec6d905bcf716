/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h -- the state of one run of the interpreter.  Private to this folder:
 * interp.c goes over tiles, operands.c brings what they read, native_run.c runs
 * compiled segments in them.
 */
#ifndef MR_KERNELS_RUN_H
#define MR_KERNELS_RUN_H

#include "kernels/frame.h"
#include "kernels/random.h"

struct mr_native;

/* Which half of the streams the tile is in. */
typedef enum mr_side {
    MR_SIDE_NONE, /* makes its own words */
    MR_SIDE_LOWER,
    MR_SIDE_UPPER /* its words were made with those of its twin */
} mr_side;

typedef struct mr_run {
    mr_schedule *s; /* a copy of the run's own: g.hop changes */
    const mr_lowered *low;
    const mr_block_launch *l;
    const mr_tier *tier;
    const struct mr_native *native; /* compiled segments, or NULL */
    bool lines; /* native_run.c: tiles with their twins, in a row */
    /* The tile at hand: where it starts in each operand; rows side by side. */
    char *in[MR_CODE_MAX_IO], *out[MR_CODE_MAX_IO];
    int64_t drawn[MR_CODE_MAX_IO]; /* and of draws: in the streams */
    mr_side side;
    /* LONG: words at hand, from this point of the row on, of each draw. */
    bool at_hand;
    int64_t words_from;
    const char *words[MR_CODE_MAX_IO];
    int64_t rows;
    int64_t ahead; /* from its first row on, those that tiles will go over */
    /* What is in own[] of an input: its source and extents. */
    const char *held[MR_CODE_MAX_IO];
    int64_t held_outer[MR_CODE_MAX_IO], held_inner[MR_CODE_MAX_IO];
    uint32_t late; /* of low->late_in, those not brought yet */
    /* Of own[] of a put, from its start on: bytes that are 0 but for the value
     * at this offset, or -1. */
    int64_t zeros[MR_CODE_MAX_IO], put_at[MR_CODE_MAX_IO];
    bool beyond; /* a mean is not finite */
    bool past;   /* outputs go past the caches */
    bool bad_index;
    int n_rounds;
    uint32_t in_place; /* outputs that steps of this tile wrote directly */
    const void *ptr[MR_LOW_REGS];   /* values: over the tile, or a splat */
    int64_t row_bytes[MR_LOW_REGS]; /* from row to row of the tile */
    uint8_t step[MR_LOW_REGS];
    const mr_frame *f;
    char *memory; /* that f's offsets refer to */
} mr_run;

/* Places in the frame, by register (frame.h). */
static inline char *
mr__at_own(const mr_run *r, int reg)
{
    return r->memory + r->f->own[reg];
}

static inline char *
mr__at_row(const mr_run *r, int reg)
{
    return r->memory + r->f->row[reg];
}

static inline char *
mr__at_lanes(const mr_run *r, int reg)
{
    return r->memory + r->f->lanes[reg];
}

static inline char *
mr__at_blocks(const mr_run *r, int reg)
{
    return r->memory + r->f->blocks[reg];
}

static inline size_t
mr__reg_size(const mr_run *r, int reg)
{
    return mr__elem_size((mr_dtype)r->low->dtype[reg]);
}

/* operands.c, for interp.c and passes.c. */
void mr__run_inputs(mr_run *r, const mr_pass *pass, int64_t outer,
                    int64_t inner, int64_t p);
void mr__run_outputs(mr_run *r, uint32_t outputs, int64_t outer, int64_t inner,
                     int64_t p);
void mr__run_row_inputs(mr_run *r, int64_t outer, int64_t inner);
void mr__run_row_outputs(mr_run *r);
/* A gather of one value a row. */
void mr__run_late_row(mr_run *r, int i);
/* What this tile and its twin read and write where it is. */
void mr__run_foresee(const mr_run *r, int64_t outer, int64_t inner,
                     mr_foreseen *ahead);
/* Where point p of a row lies from the row's start; how many of n points from
 * p on are in one run of the last reduced dim. */
int64_t mr__point_offset(const mr_block_launch *l, const mr_block_io *io,
                         int64_t p);
int64_t mr__piece_length(const mr_block_launch *l, int64_t p, int64_t n);

/* The words of a whole row, and of its twin, where they fit. */
void mr__run_row_words(mr_run *r);

/* interp.c, for passes.c. */
void mr__run_tile(mr_run *r, int64_t t, int64_t *outer, int64_t *inner);
/* From a tile to its twin. */
void mr__run_twin(mr_run *r);
void mr__run_values(mr_run *r, const mr_pass *pass, int64_t outer,
                    int64_t inner);
/* The row steps that belong before the values of pass p. */
void mr__run_rows(mr_run *r, int p, int64_t outer, int64_t inner);
/* Make the values of a row register usable along the rows of the tile. */
void mr__run_publish(mr_run *r, int reg, int64_t outer, int64_t inner);
void mr__fold_finish(mr_run *r, const mr_step *t, void *acc, int64_t outer,
                     int64_t inner);
void mr__arg_finish(mr_run *r, const mr_step *t, int64_t outer, int64_t inner);

/* passes.c: a tile of LONG or COLS; in round p, blocks [begin, end) of it;
 * and the blocks' results joined. */
void mr__run_passes(mr_run *r, int64_t tile);
void mr__run_split(mr_run *r, void *scratch, int p, int64_t tile, int64_t begin,
                   int64_t end);
void mr__run_join(mr_run *r, void *scratch, int p, bool last, int64_t tile);
/* ROWS: acc[i] = the fold of row i of the tile, longer than a block. */
void mr__fold_long_rows(const mr_run *r, const mr_step *t, void *acc,
                        const char *x, int64_t row_bytes);

/* interp.c, for native_run.c: step i of the lowered program over the tile. */
void mr__run_row_step(mr_run *r, int i, int64_t outer, int64_t inner);
void mr__run_fold(mr_run *r, int i, int64_t outer, int64_t inner);
/* A reduction whose accumulated values are in its lanes, one a row. */
void mr__run_fold_finish(mr_run *r, int i, int64_t outer, int64_t inner);

/* native_run.c: the values (and of whole rows also the reductions) of a tile
 * in this pass. */
void mr__native_run(mr_run *r, int pass, int64_t outer, int64_t inner);
/* Can tiles that follow each other be run together, each with its twin?  Up to
 * `most` of them from tile t on, that r is at; how many. */
bool mr__native_has_lines(const mr_run *r);
int64_t mr__native_line(mr_run *r, int64_t t, int64_t most);

#endif
