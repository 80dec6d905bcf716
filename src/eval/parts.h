/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h -- work of several results of which some cannot be computed, because
 * of the data: those that depend on it fail, the others do not.
 *
 * A task or a step of a compiled program as *work*: its operands, and why they
 * have no elements.  Host memory alone.
 */
#ifndef MR_EVAL_PARTS_H
#define MR_EVAL_PARTS_H

#include <stdbool.h>

#include "eval/task.h"

typedef struct mr_work mr_work;
struct mr_work {
    const mr_device_table *device; /* synchronous */
    const mr_array *node;          /* whom errors name: the kernel's, or root */
    const mr_kernel *kernel;       /* as in struct mr_task */
    const mr_block_group *block;
    /* The kernel's inputs, then the block's; with both, behind the block's
     * outputs stands the product, or nothing. */
    int n_kernel_in, n_in, n_out;
    mr_task_operand *in, *out;
    mr_error_record **in_why, **out_why; /* retained; NULL: it has elements */
    /* Puts operator and site of x to the thread's error. */
    void (*blame)(const mr_work *w, const mr_array *x);
    /* Runs a kernel with the block behind it over the operands. */
    mr_code (*run_joined)(const mr_work *w);
};

/* Is this no error of the data? */
static inline bool
mr__error_is_transient(mr_code rc)
{
    return rc == MR_E_MEMORY || rc == MR_E_CANCELLED || rc == MR_E_DEVICE;
}

/* Some inputs have no elements: says which outputs have none, without running
 * anything.  True: some have. */
bool mr__work_spread(mr_work *w);
/* The same, and computes those that have: what inputs lack is read as zeros.
 * The operands change.  An error is transient: nothing is said of the data. */
mr_code mr__work_run(mr_work *w);
/* It ran, all inputs at hand, and failed with rc and the thread's error: which
 * outputs have no elements?  An error is transient, as before. */
mr_code mr__work_failed(mr_work *w, mr_code rc);
/* What the way of a failure needs, tried again when the device's pool has given
 * memory back: mr__error_capture, mr__error_parts (of which some fail), and
 * zeroed memory, which leaves the thread's error as it is. */
mr_error_record *mr__work_capture(const mr_device_table *d);
mr_error_record *mr__work_parts(const mr_device_table *d, int n,
                                mr_error_record *const *part);
void *mr__work_alloc(const mr_device_table *d, size_t bytes);
/* Drops what in_why and out_why refer to. */
void mr__work_end(mr_work *w);

#endif
