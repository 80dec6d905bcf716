/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h -- the working memory of one run of the interpreter.
 *
 * Everything lies in one piece of the stack, MR_FRAME_BYTES for all programs
 * that people write; mr__block_plan makes tiles small enough.  Words of whole
 * rows take a wider piece, programs with very many live registers (or draws)
 * the large one.  Private to this folder.
 */
#ifndef MR_KERNELS_FRAME_H
#define MR_KERNELS_FRAME_H

#include "kernels/schedule.h"

/* Subtrees of the 64 lanes that are alive, lane by lane. */
#define MR_LANE_LEVELS 7
/* Of the tree of a block, above the parts that it may be split into. */
#define MR_PART_LEVELS 4

/* Blocks of words of the upper half that paired units keep. */
#define MR_KEPT_BLOCKS 4

#define MR_FRAME_BYTES (32 * 1024)
#define MR_FRAME_WIDE  (192 * 1024)
#define MR_FRAME_LARGE (512 * 1024)

typedef struct mr_frame {
    uint32_t bytes; /* of the whole */
    uint32_t words; /* of these, for the words of whole rows */
    /* Offsets in it: */
    uint32_t slots, slot_bytes;
    /* By register: one element repeated (constants, splat inputs), inputs
     * brought in, row values along the row. */
    uint32_t *own;
    uint32_t *row; /* the values of row registers */
    /* By the register of a reduction: its lanes (argmax: the best values),
     * and the stack of finished blocks (argmax: indices). */
    uint32_t *lanes;
    uint32_t *blocks;
    uint32_t *lane_bytes; /* from lane to lane, COLS */
} mr_frame;

#define MR_FRAME_LISTS 5
typedef struct mr_frame_room {
    uint32_t at[MR_FRAME_LISTS * MR_LOW_REGS];
} mr_frame_room;

/* Where everything is. */
void mr__frame_make(mr_frame *f, const mr_schedule *s, mr_frame_room *room);
/* Does it fit its usual place?  Words of whole rows go beyond it. */
static inline bool
mr__frame_fits(const mr_frame *f)
{
    return f->bytes - f->words <= MR_FRAME_BYTES;
}

/* The lists, n_reg entries each, one after the other. */
void mr__frame_lists(mr_frame *f, int n_reg, uint32_t *at);

/* Fields of mr_block_plan.strategy above the strategy itself. */
#define MR_PLAN_STRATEGY 0xFF
#define MR_PLAN_STREAM   0x100

/* Scratch of one block of a split tile of `width` rows: for each reduction
 * width values of 16 bytes, then width indices. */
size_t mr__partial_bytes(const mr_lowered *low, int64_t width);
/* And of the finished reductions of such a tile. */
size_t mr__state_bytes(const mr_lowered *low, int64_t width);

/* Blocks of a row, and how many of a binary counter of them are alive. */
int64_t mr__row_blocks(int64_t points);
int mr__block_levels(int64_t points);

#endif
