/* SPDX-License-Identifier: Apache-2.0
 *
 * integers.h -- the lesser and the larger of two, and rounding up.
 */
#ifndef MR_BASE_INTEGERS_H
#define MR_BASE_INTEGERS_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t
mr__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t
mr__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline size_t
mr__max_bytes(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The next multiple of `to`. */
static inline int64_t
mr__round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Bytes of whole lines of the cache. */
static inline size_t
mr__whole_lines(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

#endif
