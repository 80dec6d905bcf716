/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.c -- short-lived memory that dies whole.
 *
 * A list of chunks, each twice the one before up to a bound.  What does not
 * fit a chunk gets its own, put behind the head, so that the room left in the
 * head is not lost.
 * Called by: plans, traces, walks.  Calls: alloc.h.
 */
#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/tls.h"
#include "marram/error.h"

/* Sanitizers are to see each use of what has been freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MR_SPARE_CHUNKS 0
#else
#define MR_SPARE_CHUNKS 1
#endif

enum { ALIGN = 16, FIRST_BYTES = 4 << 10, MOST_BYTES = 256 << 10 };

struct mr_arena_chunk {
    mr_arena_chunk *next;
    size_t bytes; /* behind this header */
};

_Static_assert(sizeof(mr_arena_chunk) % ALIGN == 0,
               "the first block of a chunk is aligned");

static char *
chunk_data(mr_arena_chunk *c)
{
    return (char *)(c + 1);
}

/* One first chunk of this thread's is kept for its next arena: malloc gives
 * chunks of this size back to the heap's top, and then takes a walk over all
 * its small blocks. */
static _Thread_local struct {
    mr_arena_chunk *chunk;
    bool asked; /* for the end of the thread */
} spare __attribute__((tls_model("initial-exec")));

static void
spare_drop(void *unused)
{
    (void)unused;
    if (spare.chunk != NULL) {
        mr__alloc_cached(-1);
        mr__dealloc(spare.chunk);
    }
    spare.chunk = NULL;
    spare.asked = false;
}

/* True when c is kept. */
static bool
spare_keep(mr_arena_chunk *c)
{
    if (c->bytes != FIRST_BYTES || spare.chunk != NULL || !MR_SPARE_CHUNKS)
        return false;
    if (!spare.asked) {
        struct mr__error_stash aside = mr__error_stash();

        spare.asked = mr__at_thread_exit(spare_drop, NULL);
        mr_error_take();
        mr__error_unstash(aside);
    }
    if (!spare.asked)
        return false;
    mr__alloc_cached(1);
    spare.chunk = c;
    return true;
}

static mr_arena_chunk *
chunk_new(size_t bytes)
{
    mr_arena_chunk *c = NULL;

    if (bytes == FIRST_BYTES && spare.chunk != NULL) {
        c = spare.chunk;
        spare.chunk = NULL;
        mr__alloc_cached(-1);
    } else {
        c = mr__alloc(sizeof *c + bytes);
    }
    if (c == NULL)
        return NULL;
    c->next = NULL;
    c->bytes = bytes;
    return c;
}

/* A block of its own, behind the head. */
static void *
alloc_alone(mr_arena *a, size_t bytes)
{
    mr_arena_chunk *c = chunk_new(bytes);

    if (c == NULL)
        return NULL;
    c->next = a->head->next;
    a->head->next = c;
    return chunk_data(c);
}

static void *
alloc_slow(mr_arena *a, size_t bytes)
{
    size_t size = a->head == NULL ? FIRST_BYTES : a->head->bytes * 2;
    mr_arena_chunk *c;

    if (size > MOST_BYTES)
        size = MOST_BYTES;
    if (a->head != NULL && bytes > size / 4)
        return alloc_alone(a, bytes);
    if (size < bytes)
        size = bytes;
    c = chunk_new(size);
    if (c == NULL)
        return NULL;
    c->next = a->head;
    a->head = c;
    a->at = chunk_data(c) + bytes;
    a->end = chunk_data(c) + size;
    return chunk_data(c);
}

void *
mr__arena_alloc(mr_arena *a, size_t bytes)
{
    char *p = a->at;

    if (bytes > SIZE_MAX / 2)
        return mr__fail_null(MR_E_MEMORY, "could not allocate %zu bytes",
                             bytes);
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (bytes == 0)
        bytes = ALIGN; /* blocks have different addresses */
    if ((size_t)(a->end - p) < bytes)
        return alloc_slow(a, bytes);
    a->at = p + bytes;
    return p;
}

void *
mr__arena_zero(mr_arena *a, size_t bytes)
{
    void *p = mr__arena_alloc(a, bytes);

    return p == NULL ? NULL : memset(p, 0, bytes);
}

size_t
mr__arena_bytes(const mr_arena *a)
{
    size_t n = 0;

    for (const mr_arena_chunk *c = a->head; c != NULL; c = c->next)
        n += sizeof *c + c->bytes;
    return n;
}

void
mr__arena_free(mr_arena *a)
{
    mr_arena_chunk *c = a->head, *next;

    for (; c != NULL; c = next) {
        next = c->next;
        if (!spare_keep(c))
            mr__dealloc(c);
    }
    *a = (mr_arena){0};
}
