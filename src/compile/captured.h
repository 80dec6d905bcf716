/* SPDX-License-Identifier: Apache-2.0
 *
 * captured.h -- the arrays that a traced function found outside itself.
 */
#ifndef MR_COMPILE_CAPTURED_H
#define MR_COMPILE_CAPTURED_H

#include "base/vec.h"
#include "graph/context.h"
#include "marram/compile.h"

/* While a function is traced: what it makes is not what it found. */
void mr__captured_begin(mr_made *made);
void mr__captured_end(mr_made *made);
/* The arrays below `leaf` that were there before, each once, borrowed.  made
 * NULL: those that the function made of plain data are among them. */
bool mr__captured_find(const mr_made *made, uint64_t trace,
                       mr_array *const *leaf, int n, mr_vec *found);
/* As the function's mode wants: an error, or in the checking mode a line in the
 * log. */
mr_code mr__captured_judge(const mr_function *f, const mr_vec *found);

#endif
