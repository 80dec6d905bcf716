/* SPDX-License-Identifier: Apache-2.0
 *
 * task.h -- what a stream runs: a block program, an operator's kernel, a copy
 * between address spaces, or nothing but the news that a producer is done (an
 * alias).
 *
 * A task is made by the planner, entered into one stream, run once, and
 * completed by whoever ran it.  On a device with queues it is launched instead,
 * and completed by the provider's thread that calls its event (*landing*).  It
 * owns references to its operands' buffers and to the nodes that it completes;
 * its memory is its window's.
 */
#ifndef MR_EVAL_TASK_H
#define MR_EVAL_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "eval/device.h"
#include "eval/fuse.h"
#include "graph/node.h"

/* The memory of one plan, until its last task is done. */
typedef struct mr_window {
    /* acq_rel decrements: the last one frees what others wrote */
    _Atomic int32_t refs;
    size_t bytes; /* counted as in flight until then */
    mr_arena arena;
} mr_window;
mr_window *mr__window_new(void);
/* So many bytes are in flight until it goes.  Before its tasks may run. */
void mr__window_count(mr_window *w, size_t bytes);
void mr__window_release(mr_window *w);

typedef enum mr_task_kind {
    MR_TASK_BLOCK,
    MR_TASK_KERNEL,
    MR_TASK_ALIAS,
    MR_TASK_TRANSFER /* bytes of in[0] to out[0], between address spaces */
} mr_task_kind;

/* An operand; references are the task's. */
typedef struct mr_task_operand {
    char *data;
    mr_buffer *buffer; /* NULL: a constant of `keep` */
    union {
        mr_array *keep; /* NULL, or retained: the source, or the owner */
        /* retained, when it lacks: how the copy in front of a kernel failed
         * that was to make it (which has no source, nor owner) */
        mr_error_record *why;
    };
    bool is_source; /* keep may fail: look before running */
    bool borrowed;  /* the buffer is kept alive by the task's node */
    bool lacks;
    mr_dtype dtype;
    int32_t ndim;
    int64_t size;
    const int64_t *dim, *stride; /* elements; the window's memory */
} mr_task_operand;

/* A task that sleeps behind a node of another stream. */
typedef struct mr_wait_link {
    struct mr_wait_link *next;
    const mr_array *node;
    struct mr_task *task;
} mr_wait_link;

/* What a task on a device with queues needs besides. */
typedef struct mr_flight {
    mr_event event; /* first */
    struct mr_task *task;
    mr_error_record *why; /* it could not be launched: retained */
    uint64_t number;      /* the how-manieth task of its stream */
    void *memory;         /* what an operator's own launch asked for */
} mr_flight;

typedef struct mr_task {
    struct mr_task *next;
    mr_window *window;
    mr_task_kind kind;
    uint32_t stream;
    /* Unfinished producers on other streams, plus one while being queued.
     * acq_rel: the last decrement sees what the producers wrote. */
    _Atomic int32_t n_wait;
    uint16_t space;   /* the address space that it reads and writes */
    bool destructive; /* cannot run again: errors stick */
    bool gives;       /* a result's memory is another's after its readers */
    bool over_leaf; /* a result lies where a leaf does, maybe through others */
    struct mr_task *over; /* whose result its own lies over */
    /* where it runs: the stream's, or the host */
    const mr_device_table *device;
    mr_flight *flight; /* NULL: runs to its end on the drainer's thread */
    double cost;       /* estimated nanoseconds */
    /* A copy in front of a kernel: what the kernel is to fail with when the
     * copy does.  Both are in one stream, so one drainer orders them. */
    struct mr_task *feeds;
    int feeds_in; /* which operand of it */
    int n_in, n_out, n_done, done_cap;
    mr_task_operand *in;
    mr_task_operand *out; /* memory written */
    mr_array **done;      /* nodes that it completes, retained */
    mr_wait_link *link;
    mr_array *node; /* the operator's node (kernels), or the root: retained */
    /* MR_TASK_BLOCK: NULL for a plain copy, in[0] to out[0].  MR_TASK_KERNEL:
     * what follows the kernel, or NULL; its operands stand behind the kernel's,
     * the product among them, and the outputs are its own. */
    const mr_block_group *block;
    mr_buffer *workspace; /* blocks and kernels; NULL: none */
    /* MR_TASK_KERNEL */
    const mr_kernel *kernel; /* NULL: the operator runs itself */
    mr_kernel_args args;     /* made at planning: running allocates nothing */
    mr_partial partial;      /* of operators that run themselves */
} mr_task;

/* The normalised launch of a block program over these operands. */
void mr__block_launch_make(const mr_block_group *block,
                           const mr_task_operand *in,
                           const mr_task_operand *out, mr_block_launch *l);
/* The launch of what follows a kernel (struct mr_epilogue). */
void mr__block_launch_rows(const mr_block_group *block,
                           const mr_task_operand *in,
                           const mr_task_operand *out, mr_block_launch *l);
/* Run a block program over these operands (compiled programs do it too). */
mr_code mr__run_block(const mr_device_table *device,
                      const mr_block_group *block, const mr_task_operand *in,
                      const mr_task_operand *out);
/* The bytes of workspace that a block task needs. */
size_t mr__block_task_workspace(const mr_task *t);
/* Copy in to out, element by element in row-major order of in's dims. */
mr_code mr__run_copy(const mr_device_table *device, const mr_task_operand *in,
                     const mr_task_operand *out);
/* Operands as a kernel sees them: the inputs, then the outputs. */
void mr__operand_views(mr_kernel_view *v, int n_in, const mr_task_operand *in,
                       int n_out, const mr_task_operand *out);
/* The program and launch of a plain copy. */
const mr_block_code *mr__copy_launch(const mr_task_operand *in,
                                     const mr_task_operand *out,
                                     mr_block_launch *l);
/* Fill in a kernel's arguments but for the workspace; false: no memory.  The
 * outputs may be said later. */
bool mr__task_args(mr_task *t);
void mr__task_args_out(mr_task *t);
/* Run and complete it, or complete what has flown; frees it.  Under no lock. */
void mr__task_run(mr_task *t);
/* Why operand i, which a producer was to make, is not there: retained, or NULL
 * when it is. */
mr_error_record *mr__task_why_of_input(const mr_task *t, int i);
/* Run what it does, all inputs at hand or left out of t->partial: why all
 * results or some (mr__error_part) are not there, retained, or NULL. */
mr_error_record *mr__task_run_here(mr_task *t);
/* A kernel with the block that follows it. */
mr_code mr__task_run_joined(mr_task *t);
/* Name x as the operator of the thread's error. */
void mr__task_blame(const mr_array *x);
/* Put it into the stream's queue (made here when *queue is NULL); it may have
 * landed when this returns.  Under no lock, by the stream's drainer. */
void mr__task_launch(mr_task *t, const mr_device_table *device, void **queue)
    __attribute__((cold));

/* Work in flight, for back pressure and for waiting at a memory limit. */
int64_t mr__tasks_in_flight(void);
/* Memory that asynchronous evaluations took for windows that are not over. */
size_t mr__bytes_in_flight(void);
/* How many have ended, their memory given back. */
uint64_t mr__tasks_run(void);
void mr__tasks_entered(int64_t n); /* under the plan lock */
void mr__tasks_left(void);         /* one less; wakes who waits for progress */
/* Sleep until fewer than `below` tasks are in flight, something finished or so
 * many nanoseconds have passed (0: for ever). */
void mr__tasks_wait_progress(int64_t below, int64_t ns);

#endif
