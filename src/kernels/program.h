/* SPDX-License-Identifier: Apache-2.0
 *
 * program.h -- block programs: what a fused group computes, and on what.
 *
 * The *code* says what is computed, knows no sizes and can be kept, hashed
 * and compiled; the *launch* says over which loop nest and on which memory.
 *
 * The loop nest has `n_kept` outer dims and `n_red` reduced dims, in logical
 * order, reduced dims last.  A program without reductions has n_red == 0.
 * "Row" is one point of the kept dims: all its reduced points in order.
 *
 * Registers: 0 .. n_in-1 are the inputs, then n_const constants, then one for
 * each instruction's result.  Each register has a dtype and a phase.  A value
 * register holds one value a point; the result of a reduction holds one value
 * a row and may be used (broadcast along the row) by instructions of later
 * phases.  An instruction's phase is the largest number of reductions on any
 * path to it: phase p runs after all reductions whose operand is of phase
 * < p.  Value registers of an earlier phase used in a later one are computed
 * again (same bits) or kept, as the interpreter likes.
 *
 * Halves (float16, bfloat16) are rounded after each instruction, so fusing
 * never changes bits.  The order of a reduction is fixed by the logical
 * order of the reduced points alone: 64 virtual lanes within blocks of
 * MR_RED_BLOCK points (point k of a block goes to lane k % 64), lanes combined
 * pairwise (l with l + 32, then 16, ... 1), blocks combined pairwise in order
 * (a binary counter).  The same whatever the tier, fusion, layout, or number
 * of threads.
 */
#ifndef MR_KERNELS_PROGRAM_H
#define MR_KERNELS_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/ids.h"
#include "marram/types.h"

#define MR_RED_BLOCK 4096
/* Rows side by side are split from so many points on: one for each lane of a
 * block. */
#define MR_SPLIT_POINTS 64
#define MR_CODE_MAX_REG 256
#define MR_CODE_MAX_IO  32
/* Of an index that is computed: inputs, constants, instructions. */
#define MR_INDEX_MAX_IN    3
#define MR_INDEX_MAX_CONST 5
#define MR_INDEX_MAX_INST  8
#define MR_INDEX_MAX_REG                                                       \
    (MR_INDEX_MAX_IN + MR_INDEX_MAX_CONST + MR_INDEX_MAX_INST)

typedef struct mr_inst {
    uint16_t k;      /* mr_k: scalar operation or reduction */
    uint16_t dst;    /* register of the result */
    uint16_t arg[3]; /* registers of the operands */
    uint16_t phase;
} mr_inst;

/* A constant's bits in its dtype, in the first bytes. */
typedef union mr_const {
    uint8_t bytes[16];
    uint64_t u64[2];
    mr_c128 c128;
} mr_const;

typedef struct mr_code_out {
    uint16_t reg;
    bool per_row; /* one value a row (a reduction, or computed from such) */
} mr_code_out;

/* Where an input's values come from.  Those of a gather lie in the memory of
 * its operand, further along one of that array's axes by what the index says
 * that another input has for the point: an input of its own, that no
 * instruction reads.  Negative indices count from the end.  Those of a put are
 * 0 but for one point of each row, where the index says: that has what lies in
 * the operand's memory for the row.  Its row is one dim: n_red is 1.  Those of
 * a draw lie nowhere: the operand has the keys of streams of random words
 * (draw.h). */
typedef enum mr_source_kind {
    MR_FROM_MEMORY,
    MR_FROM_INDEX, /* indices, of any integer dtype: see `index` of a gather */
    MR_FROM_GATHER,
    MR_FROM_PUT,
    MR_FROM_DRAW
} mr_source_kind;

typedef struct mr_code_source {
    uint8_t kind;     /* mr_source_kind */
    uint8_t index;    /* gathers and puts: the input that has the indices */
    uint8_t axis;     /* and the axis, for messages */
    bool adds;        /* puts: 0 + what lies there, which has no -0 */
    uint8_t computed; /* gathers: 1 + which of the code's `indices` computes
                         them, from `index` and others; 0: they lie there */
} mr_code_source;

/* Indices that are computed where they are needed, elementwise, from inputs of
 * kind MR_FROM_INDEX.  Registers: the inputs, constants, then the results of
 * the instructions, of 8 bytes at most; the last one is the index. */
typedef struct mr_index_code {
    uint8_t n_in, n_const, n_inst;
    uint8_t in[MR_INDEX_MAX_IN]; /* the program's inputs */
    uint8_t dtype[MR_INDEX_MAX_REG];
    mr_inst inst[MR_INDEX_MAX_INST];
    mr_const consts[MR_INDEX_MAX_CONST];
} mr_index_code;

/* Plain data: may be copied, compared and hashed field by field. */
typedef struct mr_block_code {
    uint16_t n_in, n_const, n_inst, n_out, n_reg, n_phases;
    const uint8_t *reg_dtype;     /* n_reg mr_dtype values */
    const uint8_t *reg_row;       /* n_reg: 1 if the register is one a row */
    const mr_const *consts;       /* n_const */
    const mr_inst *inst;          /* n_inst, in an order that computes operands
                                     first */
    const mr_code_out *out;       /* n_out */
    const mr_code_source *source; /* n_in; NULL: all from memory */
    const mr_index_code *indices; /* n_indices */
    uint16_t n_indices;
} mr_block_code;

/* Memory of an operand.  Strides are in bytes, may be 0 (broadcast) or
 * negative.  For outputs strides are those of a fresh contiguous array unless
 * the planner gives the memory of a donated input. */
typedef struct mr_block_io {
    void *data;
    int64_t stride[MR_MAX_NDIM]; /* n_kept + n_red entries */
    /* Gathers: bytes from entry to entry of the axis, and its entries; the
     * strides are those of index 0.  Puts: the entries.  Draws: bytes from key
     * to key, of a stream, and from a key's first word to its second; strides
     * are those of the streams. */
    int64_t step, n, word;
} mr_block_io;

typedef struct mr_block_launch {
    int32_t n_kept, n_red;
    int64_t dim[MR_MAX_NDIM]; /* kept dims, then reduced dims */
    mr_block_io in[MR_CODE_MAX_IO];
    mr_block_io out[MR_CODE_MAX_IO]; /* per_row outputs: kept strides only */
} mr_block_launch;

/* Merge neighbouring dims wherever all operands allow it, drop dims of size
 * 1, and reorder kept dims for memory order where that changes no result.
 * Called once by the planner; the result is what runs. */
void mr__block_normalise(const mr_block_code *c, mr_block_launch *l);

/* Merge neighbouring kept dims but for the last wherever all operands allow
 * it; nothing changes its order, and two dims are left at least. */
void mr__block_merge_rows(const mr_block_code *c, mr_block_launch *l);

/* How a launch is split: units are independent and may run on any thread, in
 * any order and grouping.  Scratch is for partial results of split rows (0
 * bytes when none); finish() combines them and must follow all units.  Rows
 * that are split and passed over several times take a round for each pass:
 * all units, then finish(), then the next. */
typedef struct mr_block_plan {
    int64_t n_units;      /* 0 when there is nothing to do */
    int64_t unit_cost;    /* estimated nanoseconds of one unit */
    size_t scratch_bytes; /* shared by all units, 64-byte aligned */
    int32_t strategy;     /* private to the interpreter */
    int64_t chunk;        /* of one instruction on contiguous memory */
    int32_t n_rounds;     /* all units of one before those of the next */
} mr_block_plan;

mr_block_plan mr__block_plan(const mr_block_code *c, const mr_block_launch *l);
/* Both make the launch ready anew (ready.h keeps one for many runs). */
void mr__block_run(const mr_block_code *c, const mr_block_launch *l,
                   void *scratch, int round, int64_t unit_begin,
                   int64_t unit_end);
void mr__block_finish(const mr_block_code *c, const mr_block_launch *l,
                      void *scratch, int round);

/* Is there arithmetic for this operation on operands of this dtype? */
bool mr__k_supports(mr_k k, mr_dtype operand);
/* The dtype of the result for operands of this dtype (SAME, BOOL, REAL). */
mr_dtype mr__k_result(mr_k k, mr_dtype operand);

/* The instruction set chosen at start: "baseline", "avx2", "avx512", "amx",
 * "neon"; the variable MARRAM_CPU forces one.  NULL with MR_E_VALUE set when it
 * names an unknown one or one that this CPU lacks. */
const char *mr__cpu_tier(void);

/* One value from one dtype to another, by the same rules as MR_K_CAST (used
 * for constants and scalars). */
void mr__const_cast(const mr_const *from, mr_dtype from_dtype, mr_const *to,
                    mr_dtype to_dtype);

#endif
