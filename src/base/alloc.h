/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc.h -- every heap allocation of the library goes through here, so that
 * a test can make the n-th one fail.
 *
 * On failure they set MR_E_MEMORY and return NULL.  Sizes of 0 give a valid
 * pointer.  Thread safe.
 */
#ifndef MR_BASE_ALLOC_H
#define MR_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

void *mr__alloc(size_t bytes);
void *mr__alloc_zero(size_t bytes);
void *mr__alloc_again(void *p, size_t bytes); /* realloc; p intact on failure */
void *mr__alloc_array(size_t n, size_t bytes); /* checks n * bytes */
void mr__dealloc(void *p);
char *mr__strdup(const char *s);

/* Memory of arrays, not cleared: aligned to 64 bytes below 2 MiB; from there
 * mapped at a multiple of 2 MiB with huge pages advised (fresh mappings are
 * zero), beginning up to 448 KiB behind it.  To be given back with the size
 * asked for.  Used by the caching allocator alone. */
void *mr__alloc_pages(size_t bytes);
void mr__dealloc_pages(void *p, size_t bytes);

/* Fault injection (tests): let the next `n` allocations of the process pass,
 * fail the one after, then pass again.  n < 0 turns it off.  Public as
 * mr_test_alloc_fail_after (marram/sys/testing.h). */
void mr__alloc_fail_after(int64_t n);
/* The same with `run` allocations in a row that fail. */
void mr__alloc_fail_run(int64_t n, int64_t run);
/* Allocations tried since the process began, and blocks that are alive now;
 * both are -1 in builds without MR_TESTING, which do not count. */
int64_t mr__alloc_count(void);
int64_t mr__alloc_live(void);
/* `n` of the living blocks went into a cache, or are kept for ever on purpose:
 * they count as alive no more (n < 0: they came back). */
void mr__alloc_cached(int64_t n);

#endif
