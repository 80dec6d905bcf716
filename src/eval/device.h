/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h -- a device provider's table, and the host's table that it gets.
 *
 * All that the planner knows of a device: where its memory comes from, its
 * kernels by operator, how a fused group is run, how bytes get there and back.
 * The CPU's table is complete; other devices override what they do better, and
 * what they lack runs on the host.  Kernels get pointers and strides, never
 * arrays, and may not call the public API.
 *
 * The CPU is synchronous: `launch` is NULL and its kernels run to their end on
 * the calling thread.  Other devices have memory of their own (nothing of ours
 * reads or writes through such a pointer) and ordered queues: what is put into
 * one runs later, in order, and an event says when.
 *
 * A provider is a shared object that exports one function, mr_provider_init.
 * It links against nothing of ours: whatever it calls stands in mr_host.
 */
#ifndef MR_EVAL_DEVICE_H
#define MR_EVAL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "array/buffer.h"
#include "base/arena.h"
#include "base/error.h"
#include "gen/build_hash.h"
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

/* Elementwise work that follows a kernel on its result, piece by piece while
 * that is in cache: a block program without reductions, over the points of
 * out[0].  It reads out[0] as one of its inputs.  Its results may lie over that
 * and over other inputs, so each point is gone over once, when it has its last
 * bits. */
typedef struct mr_epilogue {
    const mr_block_code *code;
    /* not normalised: the last dim is out[0]'s, in front of it are the others,
     * merged where all operands allow (mr__block_merge_rows) */
    const mr_block_launch *launch;
    /* What block_ready made for everything at once, and native code for pieces
     * (mr__block_run_piece), or NULL. */
    const void *ready, *pieces;
} mr_epilogue;

/* Of operators that bring their execution: which operands have no elements. */
typedef struct mr_partial {
    /* by input: why it has none, or NULL; NULL: all have theirs */
    mr_error_record *const *in;
    /* set by run(), retained: why all results or some (mr__error_part) have
     * none because of the data; NULL: all have theirs */
    mr_error_record *out;
} mr_partial;

typedef struct mr_kernel_args {
    const mr_op *op;
    const void *params;
    int n_in, n_out;
    const mr_kernel_view *in;
    const mr_kernel_view *out; /* fresh, row-major, distinct from the inputs
                                   but for the row's `over` */
    void *workspace;  /* as many bytes as the row asked for, 64-aligned */
    const void *plan; /* of operators that bring their execution: mr_op_exec */
    const mr_epilogue *epilogue; /* NULL: none; else the row takes it */
    mr_partial *partial;         /* with `plan`, not NULL */
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
    mr_kernel_fn run;    /* of devices with queues: whatever launch makes of it,
                            not NULL */
    /* bytes of workspace for these operands (data pointers unset), or NULL */
    size_t (*workspace)(const mr_kernel_args *a);
    /* estimated nanoseconds on one thread, or NULL: by bytes moved */
    double (*cost)(const mr_kernel_args *a);
    /* i + 1: output 0 may be the memory of input i, whose elements it keeps
     * but for those that it is about; the kernel writes nothing before all that
     * may fail is done.  0: never */
    uint8_t over;
    /* runs what args->epilogue says: out[0] has one axis or more */
    bool epilogue;
    /* may find data that it cannot compute with: an index out of range, a
     * singular matrix.  Of devices with queues: a call of several results then
     * asks after it by an event; the failure of a row that does not say so is
     * one of all results.  One with an epilogue
     * finds it before it writes. */
    bool refuses;
} mr_kernel;

/* Must input i be row-major? */
static inline bool
mr__kernel_wants_row_major(const mr_kernel *k, int i)
{
    return (k->contiguous & MR_KERNEL_ALL_CONTIGUOUS) != 0 ||
           (i < 30 && k->contiguous >> i & 1);
}

/* ---- queues ----------------------------------------------------------------
 */

/* What is put into a queue: an operator's kernel or a fused group.  `kernel`,
 * `args` and `code` with all that they point to live until the event that is
 * recorded behind it; `block` and the struct itself are read during the call
 * alone. */
typedef struct mr_launch {
    const mr_kernel *kernel; /* a row of this device's table, with `args`; */
    const mr_kernel_args *args;
    const mr_block_code *code; /* or, when kernel is NULL, a block program */
    const mr_block_launch *block;
    void *workspace; /* of a block program; args has a kernel's */
    /* Whom an error names that shows when this runs: for mr_host.error_name;
     * NULL: whoever has the event knows.  Lives until that. */
    const struct mr_array *origin;
} mr_launch;

typedef enum mr_copy_way {
    MR_COPY_TO_DEVICE,   /* `from` is host memory */
    MR_COPY_FROM_DEVICE, /* `to` is host memory */
    MR_COPY_PEER /* between two devices of one provider: `peer` has `from` */
} mr_copy_way;

/* Lies in memory of the caller's until done() is called: once, under no lock of
 * the provider's, on a thread of its own or within record(), when all that
 * stood before it in the queue has run, and in the order of the queue.  rc and
 * that thread's error are the first failure since the queue's last event.
 * done() may launch, copy, record, take and give memory, and free this queue.
 */
typedef struct mr_event {
    void (*done)(struct mr_event *e, mr_code rc);
    void *provider[4]; /* its own use: record takes no memory */
} mr_event;

#define MR_DEVICE_ABI 3

typedef struct mr_device_table {
    uint32_t size;     /* sizeof(mr_device_table) where it was filled in */
    uint32_t abi;      /* MR_DEVICE_ABI there */
    const char *build; /* MR_BUILD_HASH there */
    const char *name;
    mr_device device;
    void *self; /* given to the functions below */
    mr_memory_pool *(*pool)(void *self);
    /* rows in any order, ended by one without `run`; NULL: none */
    const mr_kernel *kernels;
    /* can this operation on operands of this dtype be fused here? */
    bool (*fuses)(mr_k k, mr_dtype operand);
    /* bytes that a fused group needs besides its operands, or NULL: none */
    size_t (*block_workspace)(const mr_block_code *code,
                              const mr_block_launch *launch);

    /* Synchronous devices: runs a fused group; launch is normalised. */
    mr_code (*run_block)(const mr_block_code *code,
                         const mr_block_launch *launch, void *workspace);
    /* The same for groups that run many times, or both NULL: everything made in
     * advance but the operands' memory, in the arena (NULL: no memory), and the
     * bytes of workspace that a run wants.  Outputs lie in inputs as here. */
    const void *(*block_ready)(const mr_block_code *code,
                               const mr_block_launch *launch, mr_arena *arena,
                               size_t *workspace);
    mr_code (*run_ready)(const void *ready, void *const *in, void *const *out,
                         void *workspace);

    /* Devices with queues: any thread may call these, a queue is used by one at
     * a time.  An error of launch or copy means that nothing was put into the
     * queue; record cannot fail: a lost device tells done(). */
    void *(*queue_new)(void *self);              /* NULL with the error set */
    void (*queue_free)(void *self, void *queue); /* its events are done */
    mr_code (*launch)(void *self, void *queue, const mr_launch *l);
    mr_code (*copy)(void *self, void *queue, mr_copy_way way, void *to,
                    const void *from, size_t bytes,
                    const struct mr_device_table *peer);
    void (*record)(void *self, void *queue, mr_event *e);
    /* Peers: equal in the tables of one provider whose devices copy to each
     * other directly; NULL: through the host. */
    const void *peers;
} mr_device_table;

/* Called once for each device, by whoever links or loads it.  The table lives
 * for ever. */
mr_code mr__device_register(const mr_device_table *t);

/* ---- providers -------------------------------------------------------------
 */

#define MR_HOST_VERSION 1

/* What a provider may call.  The first four fields keep their places for ever;
 * the rest is what the build hash stands for. */
typedef struct mr_host {
    uint32_t size;    /* sizeof(mr_host) in this library */
    uint32_t version; /* MR_HOST_VERSION */
    const char *build;
    /* "provider X is of build Y, this library is Z": gives MR_E_DEVICE */
    mr_code (*refuse)(const char *name, const char *build);

    mr_code (*fail)(mr_code code, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
    mr_code (*device_register)(const mr_device_table *t);
    mr_memory_pool *(*pool_new)(const mr_pool_source *source);
    size_t (*pool_set_cache_limit)(mr_memory_pool *p, size_t limit);
    size_t (*pool_set_limit)(mr_memory_pool *p, size_t limit);
    void *(*alloc)(size_t bytes);
    void (*dealloc)(void *p);
    /* Take the thread's error aside and set it again, perhaps elsewhere. */
    mr_error_record *(*error_capture)(void);
    void (*error_raise)(const mr_error_record *r);
    void (*error_release)(mr_error_record *r);
    /* The thread's error is of a launch with this origin (NULL: nothing). */
    void (*error_name)(const struct mr_array *origin);
    /* The CPU's table: kernels by operator and block programs for devices whose
     * memory the processor reaches. */
    const mr_device_table *cpu;
    const mr_kernel *(*kernel)(const mr_device_table *t, uint16_t op);
} mr_host;

/* Registers the provider's devices.  An error means that none is there, and
 * why; the object is closed then. */
typedef mr_code mr_provider_init_fn(const mr_host *host);
#define MR_PROVIDER_INIT "mr_provider_init"
/* Object files beside the library with this beginning and ".so" are loaded. */
#define MR_PROVIDER_PREFIX "libmarram_device_"

/* The first line of a provider's init. */
static inline mr_code
mr__host_check(const mr_host *host, const char *name)
{
    if (host->size != sizeof *host || host->version != MR_HOST_VERSION ||
        strcmp(host->build, MR_BUILD_HASH) != 0)
        return host->refuse(name, MR_BUILD_HASH);
    return MR_OK;
}

#endif
