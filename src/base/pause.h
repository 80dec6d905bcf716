/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.h -- tell the processor that this thread spins.
 */
#ifndef MR_BASE_PAUSE_H
#define MR_BASE_PAUSE_H

static inline void
mr__cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
