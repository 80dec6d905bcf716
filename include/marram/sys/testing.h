/* SPDX-License-Identifier: Apache-2.0
 *
 * testing.h -- hooks for tests of Marram and of its providers.
 *
 * They are in every build; what they count is counted only in builds made
 * with MR_TESTING.
 */
#ifndef MARRAM_SYS_TESTING_H
#define MARRAM_SYS_TESTING_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

/* Let the next `n` allocations of the process pass, fail the one after with
 * MR_E_MEMORY, then pass again.  n < 0 turns it off.  Works in every build,
 * from any thread. */
MR_API void mr_test_alloc_fail_after(int64_t n);

/* Blocks that the library holds now; -1 in a build without MR_TESTING. */
MR_API int64_t mr_test_alloc_live(void);

/* Allocations tried since the process began; -1 without MR_TESTING. */
MR_API int64_t mr_test_alloc_count(void);

/* The stream that x was put on when it was made, or when it was planned; {0}:
 * none in particular. */
MR_API mr_stream mr_test_stream_of(const mr_array *x);

/* The device whose memory an evaluated x was made in; index -1: it is not
 * evaluated. */
MR_API mr_device mr_test_device_of(const mr_array *x);
/* Wait until the compile thread has nothing to do. */
MR_API void mr_test_jit_wait(void);
/* With MARRAM_JIT=now: programs get the quick code that they would get first
 * in the background, and no other. */
MR_API void mr_test_jit_quick(bool quick);

MR_EXTERN_C_END

#endif
