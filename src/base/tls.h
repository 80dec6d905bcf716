/* SPDX-License-Identifier: Apache-2.0
 *
 * tls.h -- who this thread is, and what is to be done when it ends.
 *
 * Threads of the host come and go without a word to the library; these two
 * calls are how a part of it keeps something for each.
 */
#ifndef MR_BASE_TLS_H
#define MR_BASE_TLS_H

#include <stdbool.h>
#include <stdint.h>

/* A number of this thread, from 1, never used again in the process (a forked
 * child's thread keeps its parent's). */
uint64_t mr__thread_serial(void);

/* Call fn(arg) when this thread ends, last registered first; fn may register
 * more.  False with MR_E_MEMORY set on failure.  Not for the main thread's
 * end by exit() or a return from main: nothing runs then. */
bool mr__at_thread_exit(void (*fn)(void *arg), void *arg);

#endif
