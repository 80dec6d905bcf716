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
    int n_in, n_out;
    const mr_slot *in, *out;
    int64_t workspace; /* offset in the workspace, -1: none */
} mr_step;

/* How often a program has run, until somebody asks for native code. */
typedef struct mr_heat {
    _Atomic uint32_t runs;
    _Atomic bool asked;
} mr_heat;

struct mr_program {
    mr_arena arena;
    const mr_device_table *device;
    int n_args, n_consts, n_steps, n_out;
    int n_nodes;       /* of the trace */
    mr_array **consts; /* retained, evaluated */
    mr_array **keep;   /* the trace's roots and placeholders, retained */
    int n_keep;
    mr_step *steps;
    mr_slot *outs; /* dtype, ndim, size, dim of each output */
    size_t workspace;
    size_t launch_bytes; /* of a device with queues: see mr_op_exec */
    double cost;
    mr_heat *heat; /* NULL: nothing to compile */
    size_t bytes;  /* for the cache's account */
};

/* build.c */
/* MR_E_UNSUPPORTED: its device cannot run all of it. */
mr_code mr__program_build(mr_program *p, mr_array *const *args, int n_args,
                          mr_array *const *outs, int n_outs);
/* The launch of a block step, with addresses that stand for its memory. */
void mr__step_launch(const mr_step *s, mr_block_launch *l);
/* run.c */
/* A slot as the operand of a task, at this address. */
void mr__slot_operand(const mr_slot *s, void *data, mr_task_operand *o);
/* Memory that the step's launch refers to. */
size_t mr__step_launch_bytes(const mr_step *s);
extern const mr_op mr__op_compiled; /* id 5: reserved by the graph */

#endif
