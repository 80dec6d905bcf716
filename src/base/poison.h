/* SPDX-License-Identifier: Apache-2.0
 *
 * poison.h -- tells the address sanitizer which bytes of memory that we keep
 * nobody may touch: it knows malloc's blocks, not what a cache makes of them.
 * In other builds these do nothing.
 */
#ifndef MR_BASE_POISON_H
#define MR_BASE_POISON_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define MR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MR_ASAN 1
#endif
#endif

#ifdef MR_ASAN

#include <sanitizer/asan_interface.h>

/* From here on it is an error to read or write these bytes. */
static inline void
mr__poison(const void *p, size_t bytes)
{
    __asan_poison_memory_region(p, bytes);
}

static inline void
mr__unpoison(const void *p, size_t bytes)
{
    __asan_unpoison_memory_region(p, bytes);
}

#else

static inline void
mr__poison(const void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

static inline void
mr__unpoison(const void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

#endif

#endif
