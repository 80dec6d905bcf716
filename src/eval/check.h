/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h -- the checking mode: the first NaN or infinity names its operator.
 */
#ifndef MR_EVAL_CHECK_H
#define MR_EVAL_CHECK_H

#include <stdbool.h>

#include "eval/device.h"
#include "eval/task.h"
#include "marram/eval.h"

/* The mode that is set: MARRAM_CHECK at the first use, then mr_check_set. */
mr_check_mode mr__check_mode(void);

static inline bool
mr__checking(void)
{
    return __builtin_expect(mr__check_mode() != MR_CHECK_OFF, 0);
}

/* After an operator has run (as a block program: code, whose constants count as
 * inputs): did it make the first NaN or infinity out of finite inputs?  Says so
 * with the operator and the line, or fails (the caller names both) as the mode
 * wants. */
mr_code mr__check_outputs(const mr_array *node, const mr_block_code *code,
                          int n_in, const mr_task_operand *in, int n_out,
                          const mr_task_operand *out);

#endif
