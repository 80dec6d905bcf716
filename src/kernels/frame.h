/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h -- the working memory of one run of the interpreter.
 *
 * Everything lies in one piece of the stack, MR_FRAME_BYTES for all programs
 * that people write; mr__block_plan makes tiles small enough.  Programs with
 * very many live registers get the large piece.  Private to plan.c, interp.c.
 */
#ifndef MR_KERNELS_FRAME_H
#define MR_KERNELS_FRAME_H

#include "kernels/schedule.h"

#define MR_FRAME_BYTES (32 * 1024)
#define MR_FRAME_LARGE (512 * 1024)

typedef struct mr_frame {
    char *slots;
    int64_t slot_bytes;
    /* By register: one element repeated (constants, splat inputs), inputs
     * brought in, row values along the row. */
    char *own[MR_LOW_REGS];
    char *row[MR_LOW_REGS]; /* the values of row registers */
    /* By the register of a reduction: its lanes (argmax: the best values),
     * and the stack of finished blocks (argmax: indices). */
    char *lanes[MR_LOW_REGS];
    char *blocks[MR_LOW_REGS];
    int64_t lane_bytes[MR_LOW_REGS]; /* from lane to lane, COLS */
} mr_frame;

/* Where everything is from `base` on; the bytes it takes.  A NULL base only
 * measures. */
size_t mr__frame_make(mr_frame *f, const mr_schedule *s, char *base);

/* Fields of mr_block_plan.strategy above the strategy itself. */
#define MR_PLAN_STRATEGY    0xFF
#define MR_PLAN_STREAM      0x100
#define MR_PLAN_OUTER_SHIFT 16

/* Scratch of one block of a split tile of `width` rows: for each reduction
 * width values of 16 bytes, then width indices. */
size_t mr__partial_bytes(const mr_lowered *low, int64_t width);

/* Blocks of a row, and how many of a binary counter of them are alive. */
int64_t mr__row_blocks(int64_t points);
int mr__block_levels(int64_t points);

#endif
