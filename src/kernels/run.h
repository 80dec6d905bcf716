/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h -- the state of one run of the interpreter.  Private to this folder:
 * interp.c goes over tiles, native_run.c runs compiled segments in them.
 */
#ifndef MR_KERNELS_RUN_H
#define MR_KERNELS_RUN_H

#include "kernels/frame.h"

struct mr_native;

typedef struct mr_run {
    const mr_schedule *s;
    const mr_lowered *low;
    const mr_block_launch *l;
    const mr_tier *tier;
    const struct mr_native *native; /* compiled segments, or NULL */
    /* The tile at hand: where it starts in each operand; rows side by side. */
    char *in[MR_CODE_MAX_IO], *out[MR_CODE_MAX_IO];
    int64_t rows;
    /* What is in own[] of an input: its source and extents. */
    const char *held[MR_CODE_MAX_IO];
    int64_t held_outer[MR_CODE_MAX_IO], held_inner[MR_CODE_MAX_IO];
    bool beyond;       /* a mean is not finite */
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

/* interp.c, for native_run.c: step i of the lowered program over the tile. */
void mr__run_row_step(mr_run *r, int i, int64_t outer, int64_t inner);
void mr__run_fold(mr_run *r, int i, int64_t outer, int64_t inner);
/* A reduction whose accumulated values are in its lanes, one a row. */
void mr__run_fold_finish(mr_run *r, int i, int64_t outer, int64_t inner);

/* native_run.c: the values (and of whole rows also the reductions) of a tile
 * in this pass. */
void mr__native_run(mr_run *r, int pass, int64_t outer, int64_t inner);

#endif
