/* SPDX-License-Identifier: Apache-2.0
 *
 * older.c -- what the C++ library that is linked in with LLVM takes from a
 * newer C library than Marram asks for (glibc 2.34): random numbers for names
 * of temporary files, by a function of 2.36.
 */
#ifdef MR_LLVM_IS_OURS

#include <stdint.h>
#include <unistd.h>

uint32_t __wrap_arc4random(void);

uint32_t
__wrap_arc4random(void)
{
    uint32_t x = 0;

    return getentropy(&x, sizeof x) == 0 ? x : (uint32_t)getpid();
}

#endif
