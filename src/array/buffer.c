/* SPDX-License-Identifier: Apache-2.0
 *
 * buffer.c -- counted memory: taking, wrapping, letting go; user callbacks
 * that have to wait.
 *
 * A callback of the user's runs where the last reference went, unless that is
 * a worker, a place that asked for peace (mr__defer_user_code_begin), or
 * another callback: then its buffer waits in a lock-free list that the next
 * drain empties.  So a chain of callbacks that let go of each other's buffers
 * runs in a loop and not in a recursion.
 * Called by: graph/, eval/, io/.  Calls: pool.c, base/.
 */
#include "array/buffer.h"

#include <string.h>

#include "array/pool.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/poison.h"
#include "base/pool.h"

_Atomic(mr_buffer *) mr__buffer_deferred;
void (*mr__buffer_copies_hook)(struct mr_copy *copies);
_Thread_local uint32_t mr__defer_depth;
static _Thread_local bool in_callback
    __attribute__((tls_model("initial-exec")));

mr_buffer *
mr__buffer_new(mr_memory_pool *p, size_t bytes)
{
    mr_buffer *b = p->host && bytes <= MR_SMALL_MAX
                       ? mr__magazine_take(p, bytes)
                       : mr__pool_take_large(p, bytes);

    if (__builtin_expect(b == NULL, 0))
        return NULL;
    /* relaxed: not published yet */
    atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
    b->exported_writable = false;
    b->read_only = false;
    b->sealed = false;
    b->space = p->space;
    b->bytes = bytes;
    b->copies = NULL;
    if (p->host)
        mr__unpoison(b->data, b->capacity);
#ifdef MR_CHECK_LOCKS
    if (p->host)
        memset(b->data, 0xCB, b->capacity);
#endif
    if (p->host)
        mr__poison((char *)b->data + bytes, b->capacity - bytes);
    return b;
}

void
mr__buffer_widen(mr_buffer *b, size_t bytes)
{
    if (b->bytes >= bytes)
        return;
    if (b->pool->host)
        mr__unpoison(b->data, bytes);
    b->bytes = bytes;
}

mr_buffer *
mr__buffer_wrap(void *data, size_t bytes, void (*free_fn)(void *, void *),
                void *ctx)
{
    mr_buffer *b = mr__alloc(sizeof *b);

    if (b == NULL)
        return NULL;
    *b = (mr_buffer){.refs = 1,
                     .data = data,
                     .bytes = bytes,
                     .capacity = bytes,
                     .free_fn = free_fn,
                     .free_ctx = ctx};
    return b;
}

/* Marks an embedded buffer; never called. */
static void
embedded(void *ctx, void *data)
{
    (void)ctx;
    (void)data;
}

void
mr__buffer_embed(mr_buffer *b, void *data, size_t bytes, void *block)
{
    *b = (mr_buffer){.refs = 1,
                     .read_only = true,
                     .data = data,
                     .bytes = bytes,
                     .capacity = bytes,
                     .free_fn = embedded,
                     .free_ctx = block};
}

/* ---- user callbacks ----------------------------------------------------- */

static bool
user_code_may_run(void)
{
    return mr__defer_depth == 0 && !in_callback && !mr__pool_is_worker();
}

static void
defer(mr_buffer *b)
{
    /* relaxed: only the head's address matters here */
    mr_buffer *head =
        atomic_load_explicit(&mr__buffer_deferred, memory_order_relaxed);

    do
        b->next = head;
    /* release: pairs with the exchange of the drain */
    while (!atomic_compare_exchange_weak_explicit(&mr__buffer_deferred, &head,
                                                  b, memory_order_release,
                                                  memory_order_relaxed));
}

/* The callback is the user's code: it may fail, call us, and take its time. */
static void
run_callback(mr_buffer *b)
{
    struct mr__error_stash aside = mr__error_stash();

    mr__lock_assert_none("the callback of a wrapped buffer");
    b->free_fn(b->free_ctx, b->data);
    mr__error_unstash(aside);
    mr__dealloc(b);
}

/* In the order in which they were put there. */
static mr_buffer *
reversed(mr_buffer *list)
{
    mr_buffer *out = NULL;

    while (list) {
        mr_buffer *next = list->next;

        list->next = out;
        out = list;
        list = next;
    }
    return out;
}

void
mr__buffer_drain_deferred(void)
{
    mr_buffer *list;

    if (!user_code_may_run())
        return;
    in_callback = true;
    /* acquire: pairs with the release of defer() */
    while ((list = reversed(atomic_exchange_explicit(
                &mr__buffer_deferred, NULL, memory_order_acquire))) != NULL) {
        while (list) {
            mr_buffer *b = list;

            list = b->next;
            run_callback(b);
        }
    }
    in_callback = false;
}

/* ---- letting go --------------------------------------------------------- */

static void
drop_copies(mr_buffer *b)
{
    struct mr_copy *list = b->copies;

    b->copies = NULL;
    mr__buffer_copies_hook(list);
}

static void
last_reference_gone(mr_buffer *b)
{
    if (__builtin_expect(b->copies != NULL, 0))
        drop_copies(b);
    if (b->pool) {
        if (b->pool->host)
            mr__poison(b->data, b->capacity);
        if (b->pool->host && b->capacity <= MR_SMALL_MAX)
            mr__magazine_give(b->pool, b);
        else
            mr__pool_give_large(b->pool, (mr_block *)(void *)b);
    } else if (b->free_fn == embedded) {
        mr__dealloc(b->free_ctx);
    } else if (b->free_fn == NULL) {
        mr__dealloc(b);
    } else {
        defer(b);
        mr__buffer_drain_deferred();
    }
}

void
mr__buffer_release(mr_buffer *b)
{
    if (b == NULL)
        return;
    /* acquire: who sees 1 is alone, after the releases of all others.  acq_rel:
     * the last to go frees after the reads of all others. */
    if (atomic_load_explicit(&b->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1)
        last_reference_gone(b);
}
