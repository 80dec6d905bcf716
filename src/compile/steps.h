/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.h -- the inside of a compiled program: steps over slots.
 *
 * Made once from a trace, immutable afterwards, shared by all threads.  It
 * lives in the buffer of an array (its *holder*), so that nodes and cache
 * entries keep it alive by keeping that array.
 */
#ifndef MR_COMPILE_STEPS_H
#define MR_COMPILE_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "compile/program.h"
#include "compile/simplify.h"
#include "eval/device.h"
#include "eval/fuse.h"
#include "eval/task.h"
#include "graph/node.h"
#include "graph/op.h"

typedef enum mr_slot_kind {
    MR_SLOT_ARG,   /* argument `index` of the call */
    MR_SLOT_CONST, /* captured array `index`; of a device's program captured
                      arrays are arguments of the node, behind the call's */
    MR_SLOT_TEMP,  /* the workspace */
    MR_SLOT_OUT    /* output `index` of the call */
} mr_slot_kind;

/* A value: where it lies relative to something that each call brings. */
typedef struct mr_slot {
    mr_slot_kind kind;
    int32_t index;
    int32_t value; /* which value of the program (place.h); -1: ARG, CONST */
    int64_t byte_offset;
    mr_dtype dtype;
    int32_t ndim;
    int64_t size;
    const int64_t *dim, *stride;
} mr_slot;

typedef struct mr_tier1 mr_tier1;

typedef struct mr_step {
    const mr_block_group *block; /* a block program, */
    const void *ready;           /* made ready where the device can, */
    _Atomic(mr_tier1 *) tier1;   /* its native code (tier1.h), or NULL */
    const mr_kernel *kernel;     /* or a kernel, or a copy when both NULL */
    const mr_array *node;        /* for params and messages */
    /* With both, the block follows the kernel: the block's inputs stand behind
     * the kernel's, the product among them, and the outputs are the block's,
     * behind them the product. */
    int n_in, n_out;
    const mr_slot *in, *out;
    int64_t workspace; /* offset in the workspace, -1: none */
} mr_step;

static inline bool
mr__step_is_joined(const mr_step *s)
{
    return s->kernel != NULL && s->block != NULL;
}

/* What the kernel alone reads. */
static inline int
mr__step_kernel_inputs(const mr_step *s)
{
    return s->block != NULL ? s->node->n_in : s->n_in;
}

/* What the block reads of the kernel that it follows. */
static inline const mr_slot *
mr__step_product(const mr_step *s)
{
    return mr__step_is_joined(s) ? &s->in[s->node->n_in + s->block->product]
                                 : NULL;
}

/* How often a program has run, until somebody asks for native code. */
enum { MR_ASKED_NOTHING, MR_ASKED_QUICK, MR_ASKED_ALL };
typedef struct mr_heat {
    _Atomic uint32_t runs;
    _Atomic int asked;
} mr_heat;

/* Ways in which arguments may come that a program is kept for, beside the
 * first. */
#define MR_PROGRAM_LAYOUTS 15

/* Steps for arguments that come in one way.  The *base* is for row-major ones
 * that stay whole, and owns the trace; the others (*layouts*) are made when
 * arguments lie otherwise or are given up, and look at the base's trace and
 * constants. */
struct mr_program {
    mr_arena arena;
    const mr_device_table *device;
    int n_args, n_consts, n_steps, n_out;
    int n_nodes; /* of the trace, simplified; views of constants too */
    int n_left;  /* those computed from an argument */
    int n_values;
    bool lacks_const; /* one of those has failed */
    mr_simplified simplified;
    mr_array **consts; /* evaluated; retained by the base */
    mr_array **keep;   /* the trace's placeholders and roots, retained by the
                          base: args, then outs */
    int n_keep;
    const int64_t **arg_stride; /* of each argument */
    const mr_program *base;     /* NULL: it is the base */
    /* the plan lock guards these two */
    mr_program *layout[MR_PROGRAM_LAYOUTS];
    int n_layouts;
    mr_step *steps;
    mr_slot *outs;       /* dtype, ndim, size, dim, value of each output */
    int *lies_in;        /* the argument whose memory each output takes, -1 */
    uint64_t given;      /* arguments that may be written over: bit i */
    uint64_t could_take; /* those of all that it would write over */
    size_t workspace;
    size_t launch_bytes; /* of a device with queues: see mr_op_exec */
    double cost;
    mr_heat *heat; /* NULL: nothing to compile */
    size_t bytes;  /* for the cache's account, without the layouts */
    _Atomic size_t layout_bytes; /* of a base: theirs; relaxed, a figure */
};

/* An argument of the call; not what a device's program captures. */
static inline bool
mr__slot_is_argument(const mr_program *p, const mr_slot *s)
{
    return s->kind == MR_SLOT_ARG && s->index < p->n_args;
}

/* build.c */
/* The steps of a program whose device, keep and arg_stride are set.  A base
 * evaluates what it captures; another finds that in its base, and evaluates
 * nothing.  MR_E_UNSUPPORTED: its device cannot run all of it. */
mr_code mr__program_build(mr_program *p);
/* place.c: the launch of a block step, with addresses that stand for its
 * memory; rows: of pieces, behind a kernel. */
void mr__step_launch(const mr_step *s, bool rows, mr_block_launch *l);
/* program.c */
/* Of a base: the program for arguments that lie as those of `a`, and of which
 * it may write over those of `given` (bits).  One that is
 * made new is kept, or lies in the arena when there are many.  Under the plan
 * lock, unless they are row-major.  NULL with the error set. */
const mr_program *mr__program_layout(mr_program *base, const mr_kernel_args *a,
                                     uint64_t given, mr_arena *arena);
/* Are there programs for arguments that lie otherwise than row-major?  Not on a
 * device with queues when a call brings captured arrays: their list is the
 * base's. */
bool mr__program_has_layouts(const mr_program *base);
/* The base, if the arguments lie as it has them and it would write over none of
 * them whoever has them; else NULL.  Under no lock. */
const mr_program *mr__program_kept(const mr_program *base,
                                   const mr_kernel_args *a);
/* run.c */
/* A slot as the operand of a task, at this address. */
void mr__slot_operand(const mr_slot *s, void *data, mr_task_operand *o);
/* Memory that the step's launch refers to. */
size_t mr__step_launch_bytes(const mr_program *p, const mr_step *s);
/* What a step of a device with queues, asked after, failed with; of steps
 * before it: since the last that was. */
typedef struct mr_step_watch {
    struct {
        mr_event event; /* first */
        mr_error_record *why;
    } before, at;
} mr_step_watch;
/* Where its watch lies in the memory of its launch: NULL: it has none. */
static inline mr_step_watch *
mr__step_watch(const mr_program *p, const mr_step *s, void *memory)
{
    return p->n_out > 1 && s->kernel != NULL && s->kernel->refuses ? memory
                                                                   : NULL;
}
extern const mr_op mr__op_compiled; /* id 5: reserved by the graph */
/* The operands of a step in this call, inputs first. */
typedef struct mr_step_operands {
    mr_task_operand few[64], *o;
} mr_step_operands;
bool mr__step_operands(mr_step_operands *f, const mr_program *p,
                       const mr_kernel_args *a, const mr_step *s);
void mr__step_operands_end(mr_step_operands *f);
/* A step as all inputs are there, looked at in the checking mode. */
mr_code mr__step_run(const mr_program *p, const mr_kernel_args *a,
                     const mr_step *s);
/* A joined step over operands that may not be those it was built for. */
mr_code mr__step_run_joined(const mr_kernel_args *a, const mr_step *s,
                            const mr_task_operand *in,
                            const mr_task_operand *out);

/* partly.c */
/* Runs on from this step, which failed with rc (MR_OK: it has not run), as far
 * as the data lets it; a->partial says what has come of it.  An error is
 * transient. */
mr_code mr__program_go_on(const mr_program *p, const mr_kernel_args *a, int at,
                          mr_code rc);
/* The same for a device with queues: all has run, `memory` is its launch's. */
mr_code mr__program_ran(const mr_program *p, const mr_kernel_args *a,
                        void *memory);

#endif
