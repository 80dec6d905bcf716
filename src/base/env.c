/* SPDX-License-Identifier: Apache-2.0
 *
 * env.c -- settings in the environment.
 *
 * Called by: graph/, eval/, before main.
 */
#include "base/env.h"

#include <stdlib.h>

#include "base/log.h"

bool
mr__env_operations(const char *name, uint64_t *out)
{
    const char *v = getenv(name);
    char *end;

    if (v == NULL || *v == '\0')
        return false;
    *out = strtoull(v, &end, 10);
    if (*end == '\0' && *v >= '0' && *v <= '9')
        return true;
    mr__log(MR_LOG_WARN, "%s is '%s': it may be a number of operations, or 0",
            name, v);
    return false;
}
