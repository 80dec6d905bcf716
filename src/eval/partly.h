/* SPDX-License-Identifier: Apache-2.0
 *
 * partly.h -- tasks of which some inputs are not there, or some results.
 *
 * All give the reason why all results or some (mr__error_part) are not there,
 * retained; NULL: all are.  Under no lock, by whoever runs the task.
 */
#ifndef MR_EVAL_PARTLY_H
#define MR_EVAL_PARTLY_H

#include "eval/task.h"

/* A block, or a kernel with one behind it, has failed with rc. */
mr_error_record *mr__task_block_failed(mr_task *t, mr_code rc)
    __attribute__((cold));
/* Operand `first` is not there, for the reason `why`, which is taken; further
 * ones may lack.  What does not need them is run. */
mr_error_record *mr__task_run_without(mr_task *t, int first,
                                      mr_error_record *why)
    __attribute__((cold));
/* The same for a task that flew, when all has run; why == NULL: all operands
 * are there. */
mr_error_record *mr__task_landed(mr_task *t, int first, mr_error_record *why)
    __attribute__((cold));

#endif
