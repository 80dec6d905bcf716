/* SPDX-License-Identifier: Apache-2.0
 *
 * native.h -- segments of a block program as compiled code sees them.
 *
 * A *segment* is a run of value steps between two reductions: what the
 * interpreter would do step by step over a tile, as one function of the tile's
 * memory.  Geometry, strided inputs, values of rows and the order of
 * reductions stay the interpreter's, so that compiled code has nothing to
 * agree on but the arithmetic, and that is inlined from elementwise.h.
 *
 * Registers of a segment: its inputs, then one for each operation.  A segment
 * knows no constants and no sizes: equal segments of different programs are
 * compiled once.
 *
 * native.c makes them from a launch, a JIT provider compiles them, interp.c
 * runs them.
 */
#ifndef MR_KERNELS_NATIVE_H
#define MR_KERNELS_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "kernels/program.h"
#include "kernels/tier/tier.h"

/* How an input's values lie. */
typedef enum mr_native_how {
    MR_NATIVE_POINTS, /* one a point, contiguous along a row */
    MR_NATIVE_ROW,    /* one a row */
    MR_NATIVE_ONE     /* one for all */
} mr_native_how;

/* Plain bytes without holes: segments are compared with memcmp. */
typedef struct mr_native_in {
    uint8_t dtype, how;
} mr_native_in;

typedef struct mr_native_op {
    uint16_t k;       /* mr_k, casts included */
    uint16_t arg[3];  /* registers; unused ones are 0 */
    uint8_t from, to; /* dtype of the (last) operand and of the result */
    uint8_t n_arg, unused;
} mr_native_op;

/* A reduction over each row, in float32 for halves. */
typedef struct mr_native_fold {
    uint16_t reg;
    uint8_t dtype, fold; /* of the values; mr_fold */
} mr_native_fold;

#define MR_NATIVE_OPS   256
#define MR_NATIVE_FOLDS 16

typedef struct mr_segment {
    uint16_t n_in, n_op, n_out, n_fold;
    uint16_t past; /* 1: outputs are many; where they are aligned they may be
                      stored past the caches (and fenced by the caller) */
    const mr_native_in *in;
    const mr_native_op *op;
    const uint16_t *out; /* registers that are stored, one a point */
    const mr_native_fold *fold;
} mr_segment;

/* A call: `rows` rows of n points, both at least 1.  Rows of an operand begin
 * in_row (out_row) bytes apart.  fold_out[i] gets one accumulated value a row,
 * lying one after the other. */
typedef struct mr_native_call {
    const char *const *in;
    const int64_t *in_row;
    char *const *out;
    const int64_t *out_row;
    char *const *fold_out;
    const mr_fold_fns *const *fold;
    int64_t rows, n;
} mr_native_call;

typedef void mr_native_fn(const mr_native_call *c);

/* ---- how the interpreter runs them ------------------------------------------
 */

#define MR_NATIVE_IO 96 /* inputs, and outputs, of a segment */

typedef struct mr_native_segment {
    mr_native_fn *fn; /* set once it is compiled; NULL: nothing to compute */
    mr_segment code;
    /* Registers and steps of the lowered program: */
    const uint16_t *in;   /* by input */
    const uint16_t *out;  /* by output; */
    const int16_t *slot;  /* where it goes: a slot, or -1 - program's output */
    const uint16_t *fold; /* steps of the reductions that are in the code */
    /* ROWS: rows' steps before it, reductions left to do after it */
    const uint16_t *before, *after;
    uint16_t n_before, n_after;
} mr_native_segment;

typedef struct mr_native_pass {
    int n;
    mr_native_segment *segment;
} mr_native_pass;

typedef struct mr_native {
    int n_pass;
    mr_native_pass pass[4];
    mr_native_pass index; /* one for each index that is computed: of its inputs,
                             then its constants */
} mr_native;

/* A launch made ready for compiled segments, in the arena; refers to c.  *ready
 * can be run once each segment of *native that computes (n_op > 0) has its fn.
 * NULL where there is nothing to gain or the program is beyond what is covered
 * (MR_OK), or without memory.  l: normalised. */
mr_code mr__block_make_native(const mr_block_code *c, const mr_block_launch *l,
                              mr_arena *arena, const void **ready,
                              mr_native **native);
/* The same for mr__block_run_piece; l as for mr__block_make_pieces. */
mr_code mr__block_make_native_pieces(const mr_block_code *c,
                                     const mr_block_launch *l, mr_arena *arena,
                                     const void **ready, mr_native **native);

#endif
