/* SPDX-License-Identifier: Apache-2.0
 *
 * lower.h -- a block program as the interpreter runs it: kernels looked up,
 * compound reductions taken apart.  Private to this folder.
 */
#ifndef MR_KERNELS_LOWER_H
#define MR_KERNELS_LOWER_H

#include "kernels/program.h"
#include "kernels/tier/tier.h"

/* Registers of a lowered program: those of the code, and a few for what
 * lowering adds. */
#define MR_LOW_REGS   (MR_CODE_MAX_REG + 64)
#define MR_LOW_NO_REG UINT16_MAX

typedef enum mr_step_kind {
    MR_STEP_MAP,
    MR_STEP_CAST,
    MR_STEP_FOLD,
    MR_STEP_ARG
} mr_step_kind;

typedef struct mr_step {
    union {
        mr_map_fn *map;
        mr_cast_fn *cast;
        const mr_fold_fns *fold;
        const mr_arg_fns *arg_fns;
    } fn;
    const mr_near_fns *near; /* FOLD: adds up a function of arg[0] - arg[1],
                                a value of the row; or NULL */
    uint16_t dst, arg[3];
    uint8_t kind; /* mr_step_kind */
    uint8_t n_arg;
    uint8_t k;        /* what it was, but for casts */
    uint8_t acc;      /* reductions: the dtype of the accumulation */
    uint8_t fold;     /* mr_fold */
    bool row;         /* runs once a row (never true of a reduction) */
    bool chains;      /* a map that may be in a chain of its dtype */
    bool exact_lanes; /* folds: absent lanes may be left out */
} mr_step;

/* Does it reduce? */
static inline bool
mr__step_folds(const mr_step *t)
{
    return t->kind == MR_STEP_FOLD || t->kind == MR_STEP_ARG;
}

/* What a register is. */
#define MR_REG_INPUT  0
#define MR_REG_CONST  1
#define MR_REG_RESULT 2

typedef struct mr_lowered {
    int n_reg, n_step, n_in, n_out;
    int n_pass;   /* passes over the row: 1 + the largest phase of a value */
    int n_fold;   /* reductions */
    int n_row;    /* registers of the kind one a row */
    bool rows;    /* there are rows: else every register is a value */
    bool careful; /* means do not overflow */
    int max_size; /* bytes of the widest value or row register */
    uint32_t splat_in; /* inputs that are one element */
    uint32_t gathered; /* inputs whose places come from an index, */
    uint32_t index_in; /* and those that have them */
    uint32_t late_in;  /* gathers of rows that steps of rows alone read: brought
                          before these, when the row is in cache */
    uint32_t drawn;    /* inputs that are random words */
    const mr_code_source *source; /* the code's */
    const mr_index_code *indices; /* n_indices, the code's */
    int n_indices;
    /* By register: */
    uint8_t *kind, *dtype, *phase;
    bool *row;
    const mr_const **value; /* of constants */
    mr_step *step;          /* n_step */
    uint16_t out_reg[MR_CODE_MAX_IO];
    bool out_row[MR_CODE_MAX_IO];
} mr_lowered;

/* Room for the largest program. */
typedef struct mr_lowered_room {
    mr_step step[MR_LOW_REGS];
    const mr_const *value[MR_LOW_REGS];
    uint8_t kind[MR_LOW_REGS], dtype[MR_LOW_REGS], phase[MR_LOW_REGS];
    bool row[MR_LOW_REGS];
} mr_lowered_room;

static inline size_t
mr__elem_size(mr_dtype d)
{
    static const uint8_t size[MR_N_DTYPES] = {1, 1, 2, 4, 8, 1, 2, 4,
                                              8, 2, 2, 4, 8, 8, 16};

    return size[d];
}

static inline size_t
mr__acc_size(const mr_step *t)
{
    return mr__elem_size((mr_dtype)t->acc);
}

/* Everything that o points to lies in the room.  `careful` means do not
 * overflow, at twice the work: what mr__block_run_ready asks for. */
void mr__lower(const mr_block_code *c, const mr_block_launch *l,
               const mr_tier *tier, bool careful, mr_lowered *o,
               mr_lowered_room *room);

#endif
