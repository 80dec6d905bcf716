/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc.c -- malloc and pages, with a countdown to a failure for tests.
 *
 * In release builds a call costs malloc and one relaxed load.  With MR_TESTING
 * blocks are counted, so that a test can see a leak on a failure path.
 * Called by: everything.  Calls: libc, error.h.
 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "marram/sys/testing.h"

enum {
    LINE_BYTES = 64,
    HUGE_BYTES = 2 << 20,
    COLOURS_MOST = 8,
    COLOUR_BYTES = 64 << 10,
    COLOUR_SHARE = 1 << 20, /* bytes of a block for each colour */
    PLAIN_BYTES = 2 << 10   /* from the start of a mapping without colour */
};

/* -- counting and injected failures ---------------------------------------- */

/* Allocations until the last one that is to fail; negative: off.  The last
 * fail_run of them fail.  All accesses are relaxed: they order nothing. */
static _Atomic int64_t fail_countdown = -1;
static _Atomic int64_t fail_run = 1;

#ifdef MR_TESTING
/* Relaxed: plain statistics. */
static _Atomic int64_t n_tried, n_live;
#endif

static void
count_live(int64_t n)
{
#ifdef MR_TESTING
    /* relaxed: a statistic */
    atomic_fetch_add_explicit(&n_live, n, memory_order_relaxed);
#else
    (void)n;
#endif
}

/* True when this allocation is the one that a test wants to fail. */
static bool
must_fail(void)
{
    int64_t left;

#ifdef MR_TESTING
    /* relaxed: a statistic */
    atomic_fetch_add_explicit(&n_tried, 1, memory_order_relaxed);
#endif
    /* relaxed, all: see fail_countdown */
    if (__builtin_expect(
            atomic_load_explicit(&fail_countdown, memory_order_relaxed) < 0, 1))
        return false;
    left = atomic_fetch_sub_explicit(&fail_countdown, 1, memory_order_relaxed);
    return left >= 0 &&
           left < atomic_load_explicit(&fail_run, memory_order_relaxed);
}

void
mr__alloc_fail_run(int64_t n, int64_t run)
{
    /* relaxed, all: see fail_countdown */
    atomic_store_explicit(&fail_countdown, -1, memory_order_relaxed);
    if (n < 0)
        return;
    atomic_store_explicit(&fail_run, run, memory_order_relaxed);
    atomic_store_explicit(&fail_countdown, n + run - 1, memory_order_relaxed);
}

void
mr__alloc_fail_after(int64_t n)
{
    mr__alloc_fail_run(n, 1);
}

int64_t
mr__alloc_count(void)
{
#ifdef MR_TESTING
    /* relaxed: a statistic */
    return atomic_load_explicit(&n_tried, memory_order_relaxed);
#else
    return -1;
#endif
}

int64_t
mr__alloc_live(void)
{
#ifdef MR_TESTING
    /* relaxed: a statistic */
    return atomic_load_explicit(&n_live, memory_order_relaxed);
#else
    return -1;
#endif
}

void
mr__alloc_cached(int64_t n)
{
    count_live(-n);
}

void
mr_test_alloc_fail_after(int64_t n)
{
    mr__alloc_fail_after(n);
}

int64_t
mr_test_alloc_live(void)
{
    return mr__alloc_live();
}

int64_t
mr_test_alloc_count(void)
{
    return mr__alloc_count();
}

/* -- small blocks -----------------------------------------------------------
 */

static void *
fail_bytes(size_t bytes)
{
    return mr__fail_null(MR_E_MEMORY, "could not allocate %zu bytes", bytes);
}

/* malloc(0) may give NULL, which here means failure. */
static size_t
at_least_one(size_t bytes)
{
    return bytes > 0 ? bytes : 1;
}

void *
mr__alloc(size_t bytes)
{
    void *p = must_fail() ? NULL : malloc(at_least_one(bytes));

    if (__builtin_expect(p == NULL, 0))
        return fail_bytes(bytes);
    count_live(1);
    return p;
}

void *
mr__alloc_zero(size_t bytes)
{
    void *p = must_fail() ? NULL : calloc(1, at_least_one(bytes));

    if (p == NULL)
        return fail_bytes(bytes);
    count_live(1);
    return p;
}

void *
mr__alloc_again(void *p, size_t bytes)
{
    void *q = must_fail() ? NULL : realloc(p, at_least_one(bytes));

    if (q == NULL)
        return fail_bytes(bytes);
    if (p == NULL)
        count_live(1);
    return q;
}

void *
mr__alloc_array(size_t n, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(n, bytes, &total))
        return mr__fail_null(MR_E_MEMORY,
                             "could not allocate %zu times %zu bytes: more "
                             "than an address can count",
                             n, bytes);
    return mr__alloc(total);
}

void
mr__dealloc(void *p)
{
    if (p == NULL)
        return;
    count_live(-1);
    free(p);
}

char *
mr__strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = mr__alloc(n);

    return copy == NULL ? NULL : memcpy(copy, s, n);
}

/* -- the memory of arrays ----------------------------------------------------
 */

/* 0 when there is no such multiple. */
static size_t
round_up(size_t bytes, size_t unit)
{
    size_t sum;

    if (__builtin_add_overflow(bytes, unit - 1, &sum))
        return 0;
    return sum & ~(unit - 1);
}

static size_t
page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void *
map_anonymous(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* How far from the start of its mapping a block begins.  AMD's cores (Zen 2 to
 * 4) find a line of the first-level cache by a hash of address bits 12 to 25,
 * and follow streams by as much: of two blocks a multiple of 64 MiB apart the
 * lines at one place drive each other out, and 32 MiB apart no stream is
 * followed.  Running sums by rows took ten times as long in one process of
 * thirty, whose blocks lay so.  So those a multiple of 32 MiB apart begin at
 * different places: by 64 KiB, since less was no better, and at most a
 * sixteenth of the block. */
static size_t
map_colour(const void *map, size_t bytes)
{
    size_t n = bytes / COLOUR_SHARE;

    if (n > COLOURS_MOST)
        n = COLOURS_MOST;
    return (uintptr_t)map / (32 << 20) % n * COLOUR_BYTES;
}

/* Only 2 MiB that start at a multiple of 2 MiB can become a huge page, so map
 * more and cut both ends off.  Under a limit of address space the plain
 * mapping still serves; its blocks begin at no multiple of a page, which tells
 * the two kinds apart. */
static void *
map_block(size_t bytes)
{
    size_t wide, whole, lead, tail;
    char *p;

    if (__builtin_add_overflow(bytes, 2 * (size_t)HUGE_BYTES, &wide))
        return NULL;
    p = map_anonymous(wide);
    if (p == NULL) {
        p = map_anonymous(bytes + PLAIN_BYTES);
        return p == NULL ? NULL : p + PLAIN_BYTES;
    }
    lead = (size_t)(-(uintptr_t)p & (HUGE_BYTES - 1));
    whole = round_up(bytes + map_colour(p + lead, bytes), page_bytes());
    tail = wide - lead - whole;
    if (lead > 0)
        munmap(p, lead);
    if (tail > 0)
        munmap(p + lead + whole, tail);
    p += lead;
#ifdef MADV_HUGEPAGE
    /* Advice only: a kernel without huge pages refuses it. */
    (void)madvise(p, whole, MADV_HUGEPAGE);
#endif
    return p + map_colour(p, bytes);
}

static void
unmap_block(char *p, size_t bytes)
{
    size_t before = (uintptr_t)p % HUGE_BYTES;

    if ((uintptr_t)p % page_bytes() == PLAIN_BYTES)
        before = PLAIN_BYTES;
    munmap(p - before, round_up(bytes + before, page_bytes()));
}

void *
mr__alloc_pages(size_t bytes)
{
    void *p;

    if (must_fail())
        return fail_bytes(bytes);
    if (bytes >= HUGE_BYTES)
        p = map_block(bytes);
    else
        p = aligned_alloc(LINE_BYTES,
                          round_up(at_least_one(bytes), LINE_BYTES));
    if (p == NULL)
        return fail_bytes(bytes);
    count_live(1);
    return p;
}

void
mr__dealloc_pages(void *p, size_t bytes)
{
    if (p == NULL)
        return;
    count_live(-1);
    if (bytes >= HUGE_BYTES)
        unmap_block(p, bytes);
    else
        free(p);
}
