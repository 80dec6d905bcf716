/* SPDX-License-Identifier: Apache-2.0
 *
 * hooks.c -- what the host does around a wait, and how it ends one early.
 *
 * Called by: eval.c, stream.c, under no lock: hooks are user code.
 */
#include "eval/hooks.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/error.h"
#include "base/lock.h"
#include "marram/eval.h"

/* Set once, before threads: release pairs with the acquire loads. */
static void *(*_Atomic block_before)(void);
static void (*_Atomic block_after)(void *);
static bool (*_Atomic interrupt_may)(void);
static bool (*_Atomic interrupt_poll)(void);

void
mr_set_block_hooks(void *(*before)(void), void (*after)(void *))
{
    atomic_store_explicit(&block_after, after, memory_order_release);
    atomic_store_explicit(&block_before, before, memory_order_release);
}

void *
mr__block_begin(void)
{
    void *(*before)(void) =
        atomic_load_explicit(&block_before, memory_order_acquire);

    mr__lock_assert_none("a hook of the binding");
    return before == NULL ? NULL : before();
}

void
mr__block_end(void *token)
{
    void (*after)(void *) =
        atomic_load_explicit(&block_after, memory_order_acquire);

    mr__lock_assert_none("a hook of the binding");
    if (after != NULL)
        after(token);
}

void
mr_set_interrupt_hooks(bool (*may)(void), bool (*poll)(void))
{
    atomic_store_explicit(&interrupt_poll, poll, memory_order_release);
    atomic_store_explicit(&interrupt_may, may, memory_order_release);
}

bool
mr__may_interrupt(void)
{
    bool (*may)(void) =
        atomic_load_explicit(&interrupt_may, memory_order_acquire);

    return may != NULL && may();
}

bool
mr__interrupted(void)
{
    bool (*poll)(void) =
        atomic_load_explicit(&interrupt_poll, memory_order_acquire);

    mr__lock_assert_none("a hook of the host");
    if (poll == NULL || !poll())
        return false;
    mr__fail(MR_E_CANCELLED, "the wait was interrupted; what was submitted "
                             "goes on, and can be asked for again");
    return true;
}
