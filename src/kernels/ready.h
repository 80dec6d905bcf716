/* SPDX-License-Identifier: Apache-2.0
 *
 * ready.h -- a launch made ready: lowered, scheduled, laid out.
 *
 * Everything that a run needs but the memory.  Made once for a code and a
 * normalised launch, and good for each launch that differs from it in its data
 * pointers alone, as long as the same outputs lie in the same inputs.
 * Immutable, so any number of threads may run it.  An eager run makes one in a
 * room on its stack; a compiled program keeps a compact copy.
 */
#ifndef MR_KERNELS_READY_H
#define MR_KERNELS_READY_H

#include "base/arena.h"
#include "kernels/frame.h"

typedef struct mr_block_ready {
    const mr_block_code *code;
    mr_block_plan plan;
    mr_lowered low;
    mr_schedule schedule;
    mr_frame frame;
    const struct mr_native *native; /* compiled segments (native.h), or NULL */
    /* Of a kept one: the launch without its data, inputs first. */
    int32_t n_kept, n_red;
    const int64_t *dim;
    const int64_t *stride; /* n_kept + n_red for each operand */
    const int64_t *axis;   /* with gathers or draws: step, n and word of each
                              input, or NULL */
} mr_block_ready;

/* Room for the largest program; about 24 KB. */
typedef struct mr_block_room {
    mr_block_ready ready;
    mr_lowered_room low;
    mr_schedule_room schedule;
    mr_frame_room frame;
} mr_block_room;

/* Was there anything to lower and to schedule? */
static inline bool
mr__block_is_lowered(const mr_block_ready *b)
{
    return b->plan.n_units > 0 &&
           (b->plan.strategy & MR_PLAN_STRATEGY) != MR_RUN_ONE;
}

/* l: normalised.  The result lies in the room; it refers to c and l. */
const mr_block_ready *mr__block_make_ready(const mr_block_code *c,
                                           const mr_block_launch *l,
                                           mr_block_room *room);
/* The same where means do not overflow: twice the work for them, and the same
 * bits where nothing did. */
const mr_block_ready *mr__block_make_careful(const mr_block_code *c,
                                             const mr_block_launch *l,
                                             mr_block_room *room);
/* A compact copy that refers to the code alone; NULL: no memory. */
const mr_block_ready *mr__block_keep_ready(const mr_block_ready *b,
                                           const mr_block_launch *l,
                                           mr_arena *arena);
/* Everything of a kept one's launch but the data pointers. */
void mr__block_ready_launch(const mr_block_ready *b, mr_block_launch *l);

/* What a run met. */
enum {
    MR_RAN_BEYOND = 1,   /* a mean is not finite, because its sum was not; a
                            careful run tells whether the mean is */
    MR_RAN_BAD_INDEX = 2 /* an index is out of range: source.h finds it */
};

/* ---- pieces ---------------------------------------------------------------
 * A program without reductions may also run over rectangles of its points, on
 * any thread and in any order; two dims or more, l as mr__block_merge_rows left
 * it. */
const mr_block_ready *mr__block_make_pieces(const mr_block_code *c,
                                            const mr_block_launch *l,
                                            mr_block_room *room);

typedef struct mr_block_piece {
    int64_t row, n_rows; /* of all dims but the last, as one */
    int64_t col, n_cols;
} mr_block_piece;

void mr__block_run_piece(const mr_block_ready *b, const mr_block_launch *l,
                         const mr_block_piece *p);

/* ---- runs ----------------------------------------------------------------
 */

/* As mr__block_run and mr__block_finish. */
unsigned mr__block_run_ready(const mr_block_ready *b, const mr_block_launch *l,
                             void *scratch, int round, int64_t unit_begin,
                             int64_t unit_end);
unsigned mr__block_finish_ready(const mr_block_ready *b,
                                const mr_block_launch *l, void *scratch,
                                int round);

#endif
