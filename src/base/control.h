/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h -- the floating-point control word that kernels count on: round
 * to nearest, subnormal numbers as they are.
 *
 * A thread may have been set otherwise by whatever else is in the process (a
 * library built with -Ofast does so when it is loaded): who runs kernels on a
 * thread that is not the pool's enters first, and leaves with what enter gave.
 */
#ifndef MR_BASE_CONTROL_H
#define MR_BASE_CONTROL_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

#define MR_CONTROL_DEFAULT 0x1F80U
#define MR_CONTROL_FLAGS   0x3FU /* what has happened so far */

static inline uint64_t
mr__control_get(void)
{
    return _mm_getcsr() & ~MR_CONTROL_FLAGS;
}

static inline void
mr__control_set(uint64_t x)
{
    _mm_setcsr((unsigned)x);
}

#elif defined(__aarch64__)

#define MR_CONTROL_DEFAULT 0U

static inline uint64_t
mr__control_get(void)
{
    uint64_t x;

    __asm__ volatile("mrs %0, fpcr" : "=r"(x));
    return x;
}

static inline void
mr__control_set(uint64_t x)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(x));
}

#endif

static inline uint64_t
mr__control_enter(void)
{
    uint64_t old = mr__control_get();

    if (old != MR_CONTROL_DEFAULT)
        mr__control_set(MR_CONTROL_DEFAULT);
    return old;
}

static inline void
mr__control_leave(uint64_t old)
{
    if (old != MR_CONTROL_DEFAULT)
        mr__control_set(old);
}

#endif
