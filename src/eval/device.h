/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h -- a device provider's table.
 *
 * All that the planner knows of a device: where its memory comes from, its
 * kernels by operator, how a fused group is run.  The CPU's table is complete;
 * other devices override what they do better.  Kernels get pointers and
 * strides, never arrays, and may not call the public API.
 */
#ifndef MR_EVAL_DEVICE_H
#define MR_EVAL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "array/buffer.h"
#include "base/arena.h"
#include "graph/op.h"
#include "kernels/program.h"
#include "marram/types.h"

/* Memory of an operand: strides in elements, may be 0 or negative. */
typedef struct mr_kernel_view {
    void *data; /* the first element */
    mr_dtype dtype;
    int32_t ndim;
    int64_t size;
    const int64_t *dim;
    const int64_t *stride;
} mr_kernel_view;

typedef struct mr_kernel_args {
    const mr_op *op;
    const void *params;
    int n_in, n_out;
    const mr_kernel_view *in;
    const mr_kernel_view *out; /* fresh, row-major, distinct from the inputs */
    void *workspace; /* as many bytes as the row asked for, 64-aligned */
} mr_kernel_args;

/* Runs to its end on the calling thread (and the pool's, through
 * mr__pool_loop).  A failure (bad index in the data, singular matrix) is set
 * with mr__fail and sticks to the outputs. */
typedef mr_code (*mr_kernel_fn)(const mr_kernel_args *a);

#define MR_KERNEL_ALL_CONTIGUOUS 0x80000000u

typedef struct mr_kernel {
    uint16_t op;         /* MR_OP_... */
    uint32_t contiguous; /* bit i: input i must be row-major; the planner puts a
                            copy in front when it is not */
    mr_kernel_fn run;
    /* bytes of workspace for these operands (data pointers unset), or NULL */
    size_t (*workspace)(const mr_kernel_args *a);
    /* estimated nanoseconds on one thread, or NULL: by bytes moved */
    double (*cost)(const mr_kernel_args *a);
} mr_kernel;

#define MR_DEVICE_ABI 1

typedef struct mr_device_table {
    uint32_t abi; /* MR_DEVICE_ABI */
    const char *name;
    mr_device device;
    mr_memory_pool *(*pool)(void);
    /* rows in any order, ended by {0}; looked up by id once at registration */
    const mr_kernel *kernels;
    /* a fused group; launch is normalised */
    mr_code (*run_block)(const mr_block_code *code,
                         const mr_block_launch *launch);
    /* For groups that run many times, or both NULL: everything made in advance
     * but the operands' memory, in the arena (NULL: no memory), and the bytes
     * of workspace that a run wants.  Outputs lie in inputs as they do here. */
    const void *(*block_ready)(const mr_block_code *code,
                               const mr_block_launch *launch, mr_arena *arena,
                               size_t *workspace);
    mr_code (*run_ready)(const void *ready, void *const *in, void *const *out,
                         void *workspace);
    /* can this operation on this dtype be fused here? */
    bool (*fuses)(mr_k k, mr_dtype operand);
} mr_device_table;

/* Called once for each device, by whoever links or loads it. */
mr_code mr__device_register(const mr_device_table *t);

#endif
