/* SPDX-License-Identifier: Apache-2.0
 *
 * env.h -- settings in the environment.
 */
#ifndef MR_BASE_ENV_H
#define MR_BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

/* A number of operations; false: the variable is not set, or (a line in the
 * log) is no number. */
bool mr__env_operations(const char *name, uint64_t *out);

#endif
