/* SPDX-License-Identifier: Apache-2.0
 *
 * base.h -- what tests of base/ share: threads, child processes, and every
 * allocation failing in turn.
 */
#ifndef MRT_BASE_H
#define MRT_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#define MRT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MRT_TSAN 1
#endif
#endif
#ifndef MRT_TSAN
#define MRT_TSAN 0
#endif

#define MRT_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Run fn(arg, i) on n threads at once and join them. */
void mrt_threads(int n, void (*fn)(void *arg, int i), void *arg);

/* Run fn(arg) in a forked child, which then ends with status 0; what it wrote
 * to standard error is in `text` afterwards.  Gives waitpid's status.  A child
 * that takes longer than a minute is ended by SIGALRM. */
int mrt_child(void (*fn)(void *arg), void *arg, char *text, size_t bytes);

/* Call fn(arg) with the first allocation failing, then the second, until a
 * call succeeds: it must give false with MR_E_MEMORY set while one fails, and
 * hold as many blocks after as before.  Gives the number of failures. */
int mrt_each_failure(bool (*fn)(void *arg), void *arg);

#endif
