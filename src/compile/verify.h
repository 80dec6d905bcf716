/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h -- what must be true of a trace and of a program after each pass.
 *
 * Debug builds stop at the first breach; others never call these.
 */
#ifndef MR_COMPILE_VERIFY_H
#define MR_COMPILE_VERIFY_H

#include "compile/steps.h"

/* y stands for x: one dtype, one shape, and y is what its operator infers. */
void mr__verify_same(const mr_array *x, mr_array *y);
/* Every slot is read whole from where its value was last written, every output
 * is written, nothing writes over what is read later. */
void mr__verify_program(const mr_program *p);

#endif
