/* SPDX-License-Identifier: Apache-2.0
 *
 * history.h -- what a function's traces were made for, until it is said that
 * there are too many.
 */
#ifndef MR_COMPILE_HISTORY_H
#define MR_COMPILE_HISTORY_H

#include <stdatomic.h>
#include <stdint.h>

/* Traces of one function before it is said aloud. */
enum { MR_MANY_TRACES = 8 };

typedef struct mr_history {
    /* Each a text of lines "name: value"; written once, by whoever made that
     * trace.  Release, pairs with the acquire of who reads them all. */
    _Atomic(char *) trace[MR_MANY_TRACES + 1];
} mr_history;

void mr__history_free(mr_history *h);
/* Trace number n (from 0) was made for `lines`, which is taken.  The one after
 * the last that is allowed logs what kept changing; frozen: why a shapeless
 * function is traced again, or NULL. */
void mr__history_add(mr_history *h, const char *name, uint64_t n, char *lines,
                     const char *frozen);

#endif
