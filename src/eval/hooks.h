/* SPDX-License-Identifier: Apache-2.0
 *
 * hooks.h -- what the host does around a wait, and how it ends one early.
 */
#ifndef MR_EVAL_HOOKS_H
#define MR_EVAL_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "marram/types.h"

/* Work above this many nanoseconds is not run by a thread that may be
 * interrupted: a worker gets it, so that the wait can end before it does. */
#define MR__PATIENT_NS 5e6
/* How long such a thread sleeps until it asks again. */
#define MR__POLL_NS INT64_C(50000000)

/* Blocking: hooks of the binding around it. */
void *mr__block_begin(void);
void mr__block_end(void *token);

/* Does this thread want to be asked during long waits? */
bool mr__may_interrupt(void);
/* Ask: true ends the wait, with MR_E_CANCELLED set.  Between the block hooks,
 * under no lock. */
bool mr__interrupted(void);

#endif
