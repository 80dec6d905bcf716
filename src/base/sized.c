/* SPDX-License-Identifier: Apache-2.0
 *
 * sized.c -- structures that grow.
 *
 * Called by: whatever takes options or gives figures.
 */
#include "base/sized.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"

_Static_assert(sizeof(size_t) == sizeof(uint64_t),
               "headers write the size as either");

/* What both sides know of it; 0 with the error set. */
static size_t
common(const void *theirs, size_t bytes, const char *type)
{
    uint64_t size;

    memcpy(&size, theirs, sizeof size);
    if (size < sizeof size) {
        mr__fail(MR_E_VALUE, "the size of the %s is %llu: set it to sizeof(%s)",
                 type, (unsigned long long)size, type);
        return 0;
    }
    return size < bytes ? (size_t)size : bytes;
}

mr_code
mr__sized_take(void *ours, size_t bytes, const void *given, const char *type)
{
    size_t n = common(given, bytes, type);

    if (n == 0)
        return MR_E_VALUE;
    memcpy(ours, given, n);
    return MR_OK;
}

mr_code
mr__sized_give(void *out, const void *ours, size_t bytes, const char *type)
{
    uint64_t n;

    if (out == NULL)
        return mr__fail(MR_E_NULL, "the place for the %s is NULL", type);
    n = common(out, bytes, type);
    if (n == 0)
        return MR_E_VALUE;
    memcpy(out, ours, n);
    memcpy(out, &n, sizeof n);
    return MR_OK;
}
