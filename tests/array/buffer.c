/* SPDX-License-Identifier: Apache-2.0
 *
 * buffer.c -- tests of counted memory and of the caching allocator.
 */
#include "array/buffer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/pool.h"
#include "base.h"
#include "base/alloc.h"
#include "base/poison.h"
#include "base/pool.h"
#include "marram/error.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

static mr_memory_pool *
host(void)
{
    return mr__host_pool();
}

/* ---- classes ------------------------------------------------------------ */

static void
classes__hold_what_they_say(void **state)
{
    (void)state;
    for (size_t n = 0; n <= MR_SMALL_MAX; n++) {
        int c = mr__small_class(n);

        assert_true(c >= 0 && c < MR_N_SMALL);
        assert_true(mr__small_capacity(c) >= n);
        assert_true(c == 0 || mr__small_capacity(c - 1) < n);
    }
    assert_int_equal(mr__small_capacity(MR_N_SMALL - 1), MR_SMALL_MAX);
}

static void
blocks__have_little_slack_and_are_aligned(void **state)
{
    (void)state;
    for (size_t n = 1; n < 40 * MIB; n = n * 9 / 8 + 1) {
        mr_buffer *b = mr__buffer_new(host(), n);

        assert_non_null(b);
        assert_true(b->capacity >= n);
        assert_int_equal((uintptr_t)b->data % 64, 0);
        if (n > MR_SMALL_MAX)
            assert_true(b->capacity - n <= n / 8);
        else if (n > 256)
            assert_true(b->capacity - n <= n / 4);
        mr__buffer_widen(b, b->capacity);
        memset(b->data, 1, b->capacity);
        mr__buffer_release(b);
        mr__pool_trim(host(), 0);
    }
}

static void
fresh_memory__is_poisoned_in_checked_builds(void **state)
{
    mr_buffer *b = mr__buffer_new(host(), 100);

    (void)state;
    memset(b->data, 0, 100);
    mr__buffer_release(b);
    b = mr__buffer_new(host(), 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((unsigned char *)b->data)[i], 0xCB);
    mr__buffer_release(b);
}

/* What the address sanitizer is told: a byte past the end, and a dead buffer,
 * are errors, whatever the block's size. */
static void
memory_that_is_nobodys__is_known_to_the_sanitizer(void **state)
{
    (void)state;
#ifdef MR_ASAN
    for (size_t n = 1; n < 4 * MIB; n = n * 3 + 1) {
        mr_buffer *b = mr__buffer_new(host(), n);
        char *data = b->data;

        assert_null(__asan_region_is_poisoned(data, n));
        if (b->capacity > n)
            assert_true(__asan_address_is_poisoned(data + n));
        mr__buffer_widen(b, b->capacity);
        assert_null(__asan_region_is_poisoned(data, b->capacity));
        mr__buffer_release(b);
        assert_true(__asan_address_is_poisoned(data));
        assert_true(__asan_address_is_poisoned(data + n - 1));
    }
#else
    skip();
#endif
}

/* ---- reuse and figures -------------------------------------------------- */

static void
small__is_reused_at_once(void **state)
{
    mr_buffer *a = mr__buffer_new(host(), 100), *b;

    (void)state;
    mr__buffer_release(a);
    b = mr__buffer_new(host(), 90);
    assert_ptr_equal(a, b);
    mr__buffer_release(b);
}

static void
large__is_reused_best_fit(void **state)
{
    mr_buffer *big, *mid, *x;

    (void)state;
    mr__pool_trim(host(), 0);
    big = mr__buffer_new(host(), 1400 * KIB);
    mid = mr__buffer_new(host(), 1100 * KIB);
    mr__buffer_release(big);
    mr__buffer_release(mid);
    x = mr__buffer_new(host(), 1050 * KIB);
    assert_ptr_equal(x, mid);
    mr__buffer_release(x);
    x = mr__buffer_new(host(), 1300 * KIB);
    assert_ptr_equal(x, big);
    mr__buffer_release(x);
    /* what would waste more than half is left alone */
    x = mr__buffer_new(host(), 200 * KIB);
    assert_true(x->capacity < 300 * KIB);
    mr__buffer_release(x);
    mr__pool_trim(host(), 0);
}

static void
figures__follow_what_is_held(void **state)
{
    mr_pool_stats before, s;
    mr_buffer *small[100], *large;

    (void)state;
    mr__pool_trim(host(), 0);
    mr__pool_reset_peak(host());
    before = mr__pool_stats(host());
    assert_int_equal(before.cached, 0);
    assert_int_equal(before.peak, before.active);
    for (int i = 0; i < 100; i++)
        small[i] = mr__buffer_new(host(), 1000);
    large = mr__buffer_new(host(), 3 * MIB);
    s = mr__pool_stats(host());
    assert_int_equal(s.active, before.active + 100 * 1024 + large->capacity);
    assert_int_equal(s.peak, s.active);
    assert_int_equal(s.cached, 0);
    mr__buffer_release(large);
    for (int i = 0; i < 100; i++)
        mr__buffer_release(small[i]);
    assert_int_equal(mr__pool_stats(host()).active, before.active);
    assert_int_equal(mr__pool_stats(host()).peak, s.peak);
    assert_int_equal(mr__pool_stats(host()).cached, s.active - before.active);
    mr__pool_reset_peak(host());
    assert_int_equal(mr__pool_stats(host()).peak, before.active);
    mr__pool_trim(host(), 0);
    assert_int_equal(mr__pool_stats(host()).cached, 0);
}

static void
trim__keeps_as_much_as_asked(void **state)
{
    mr_buffer *b[8];

    (void)state;
    mr__pool_trim(host(), 0);
    for (int i = 0; i < 8; i++)
        b[i] = mr__buffer_new(host(), MIB);
    for (int i = 0; i < 8; i++)
        mr__buffer_release(b[i]);
    assert_int_equal(mr__pool_stats(host()).cached, 8 * MIB);
    mr__pool_trim(host(), 3 * MIB);
    assert_int_equal(mr__pool_stats(host()).cached, 3 * MIB);
    mr__pool_trim(host(), 0);
    assert_int_equal(mr__pool_stats(host()).cached, 0);
}

/* ---- limits ------------------------------------------------------------- */

static void
limit__is_a_limit(void **state)
{
    size_t old;
    mr_buffer *a, *b;

    (void)state;
    mr__pool_trim(host(), 0);
    old = mr__pool_set_limit(host(), mr__pool_stats(host()).active + 4 * MIB);
    a = mr__buffer_new(host(), 3 * MIB);
    assert_non_null(a);
    b = mr__buffer_new(host(), 2 * MIB);
    assert_null(b);
    assert_int_equal(mr_error_last().code, MR_E_MEMORY);
    assert_non_null(strstr(mr_error_take().message, "limit"));
    /* cached memory makes room */
    mr__buffer_release(a);
    b = mr__buffer_new(host(), 4 * MIB);
    assert_non_null(b);
    mr__buffer_release(b);
    assert_int_equal(mr__pool_set_limit(host(), old),
                     mr__pool_stats(host()).active + 4 * MIB);
    assert_null(mr__buffer_new(host(), SIZE_MAX));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
}

static void
limit__below_what_is_cached_trims(void **state)
{
    mr_buffer *b = mr__buffer_new(host(), 8 * MIB);
    size_t old;

    (void)state;
    mr__buffer_release(b);
    assert_true(mr__pool_stats(host()).cached >= 8 * MIB);
    old = mr__pool_set_limit(host(), mr__pool_stats(host()).active + MIB);
    assert_true(mr__pool_stats(host()).cached <= MIB);
    mr__pool_set_limit(host(), old);
}

static void
cache_limit__of_nothing_keeps_nothing(void **state)
{
    size_t old = mr__pool_set_cache_limit(host(), 0);
    mr_buffer *small = mr__buffer_new(host(), 100);
    mr_buffer *large = mr__buffer_new(host(), MIB);

    (void)state;
    assert_int_equal(mr__pool_stats(host()).cached, 0);
    mr__buffer_release(small);
    mr__buffer_release(large);
    assert_int_equal(mr__pool_stats(host()).cached, 0);
    assert_int_equal(mr__pool_set_cache_limit(host(), old), 0);
}

static void
cache_limit__lets_the_oldest_go(void **state)
{
    size_t old;
    mr_buffer *a, *b;

    (void)state;
    mr__pool_trim(host(), 0);
    old = mr__pool_set_cache_limit(host(), 3 * MIB);
    a = mr__buffer_new(host(), 2 * MIB);
    b = mr__buffer_new(host(), MIB + 1);
    mr__buffer_release(a);
    mr__buffer_release(b); /* a has to go */
    assert_int_equal(mr__pool_stats(host()).cached, b->capacity);
    mr__pool_set_cache_limit(host(), old);
}

static void
machine__is_the_smallest_limit(void **state)
{
    char dir[] = "/tmp/mrt-memory-XXXXXX", path[128];
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "mkdir -p %s/a/b %s/memory/c", dir, dir);
    assert_int_equal(system(path), 0);
    assert_true(mr__memory_of_machine("", dir) > 100 * (size_t)MIB);
    snprintf(path, sizeof path, "%s/a/memory.max", dir);
    f = fopen(path, "w");
    fputs("1000000\n", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/a/b/memory.max", dir);
    f = fopen(path, "w");
    fputs("max\n", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/memory/c/memory.limit_in_bytes", dir);
    f = fopen(path, "w");
    fputs("500000\n", f);
    fclose(f);
    assert_int_equal(mr__memory_of_machine("0::/a/b\n", dir), 1000000);
    assert_int_equal(mr__memory_of_machine("9:cpu,memory:/c\n0::/a/b\n", dir),
                     500000);
    assert_int_equal(mr__memory_of_machine("9:cpu:/c\n0::/a\n", dir), 1000000);
    snprintf(path, sizeof path, "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

/* ---- pools of devices --------------------------------------------------- */

typedef struct mrt_source {
    int taken, given;
    size_t room;
} mrt_source;

static void *
source_take(void *ctx, size_t bytes)
{
    mrt_source *s = ctx;

    if (bytes > s->room)
        return NULL;
    s->room -= bytes;
    s->taken++;
    return malloc(bytes);
}

static void
source_give(void *ctx, void *p, size_t bytes)
{
    mrt_source *s = ctx;

    s->room += bytes;
    s->given++;
    free(p);
}

static void
pool__of_a_device_keeps_and_gives_back(void **state)
{
    mrt_source s = {0, 0, 4096};
    mr_pool_source source = {"test", source_take, source_give, &s};
    mr_memory_pool *p = mr__pool_new(&source);
    mr_buffer *a = mr__buffer_new(p, 1000), *b;

    (void)state;
    mr__buffer_release(a);
    assert_ptr_equal(mr__buffer_new(p, 1000), a);
    assert_int_equal(s.taken, 1);
    mr__buffer_release(a);
    /* the source has no more: what is cached goes first */
    b = mr__buffer_new(p, 3500);
    assert_non_null(b);
    assert_int_equal(s.given, 1);
    assert_null(mr__buffer_new(p, 3500));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
    assert_int_equal(mr__pool_stats(p).active, b->capacity);
    mr__buffer_release(b);
    mr__pool_free(p);
    assert_int_equal(s.taken, s.given);
}

/* ---- user memory -------------------------------------------------------- */

typedef struct mrt_owner {
    int calls;
    pthread_t thread;
    mr_buffer *next; /* released by the callback */
} mrt_owner;

static void
owner_free(void *ctx, void *data)
{
    mrt_owner *o = ctx;

    (void)data;
    o->calls++;
    o->thread = pthread_self();
    mr__buffer_release(o->next);
}

static void
callback__runs_once_with_the_last_reference(void **state)
{
    mrt_owner o = {0};
    char data[4];
    mr_buffer *b = mr__buffer_wrap(data, 4, owner_free, &o);

    (void)state;
    mr__buffer_retain(b);
    mr__buffer_release(b);
    assert_int_equal(o.calls, 0);
    mr__buffer_release(b);
    assert_int_equal(o.calls, 1);
}

static void
callback__waits_while_asked_to(void **state)
{
    mrt_owner o = {0};
    mr_buffer *b = mr__buffer_wrap(&o, 4, owner_free, &o);

    (void)state;
    mr__defer_user_code_begin();
    mr__buffer_release(b);
    mr__buffer_drain();
    assert_int_equal(o.calls, 0);
    mr__defer_user_code_end();
    assert_int_equal(o.calls, 0);
    mr__buffer_drain();
    assert_int_equal(o.calls, 1);
}

typedef struct mrt_job {
    mr_buffer *b;
    _Atomic bool done;
} mrt_job;

static void
release_job(void *ctx)
{
    mrt_job *j = ctx;

    mr__buffer_release(j->b);
    atomic_store(&j->done, true);
}

static void
callback__never_runs_on_a_worker(void **state)
{
    mrt_owner o = {0};
    mrt_job j = {mr__buffer_wrap(&o, 4, owner_free, &o), false};

    (void)state;
    assert_true(mr__pool_job(release_job, &j));
    while (!atomic_load(&j.done))
        ;
    assert_int_equal(o.calls, 0);
    mr__buffer_drain();
    assert_int_equal(o.calls, 1);
    assert_true(pthread_equal(o.thread, pthread_self()));
}

static void
callbacks__that_release_each_other_do_not_recurse(void **state)
{
    enum { N = 200000 };
    mrt_owner *o = calloc(N, sizeof *o);
    mr_buffer *b = NULL;

    (void)state;
    for (int i = 0; i < N; i++) {
        o[i].next = b;
        b = mr__buffer_wrap(&o[i], 1, owner_free, &o[i]);
    }
    mr__buffer_release(b);
    for (int i = 0; i < N; i++)
        assert_int_equal(o[i].calls, 1);
    free(o);
}

static void
embedded__frees_its_block(void **state)
{
    int64_t live = mr__alloc_live();
    char *block = mr__alloc(sizeof(mr_buffer) + 16);
    mr_buffer *b = (mr_buffer *)(void *)block;

    (void)state;
    mr__buffer_embed(b, block + sizeof *b, 16, block);
    assert_true(b->read_only);
    mr__buffer_retain(b);
    mr__buffer_release(b);
    mr__buffer_release(b);
    assert_int_equal(mr__alloc_live(), live);
}

/* ---- threads ------------------------------------------------------------ */

enum { N_THREADS = 8, N_SHARED = 512 };
static _Atomic(mr_buffer *) shared[N_SHARED];

/* Take, write, check, and swap buffers with the other threads. */
static void
churn(void *arg, int id)
{
    uint32_t r = (uint32_t)id * 2654435761U + 1;

    (void)arg;
    for (int i = 0; i < 20000; i++) {
        size_t bytes;
        mr_buffer *b;

        r = r * 1664525 + 1013904223;
        bytes = r >> 8 & ((r >> 4 & 15) == 0 ? 0x3ffff : 0xfff);
        b = mr__buffer_new(host(), bytes);
        assert_non_null(b);
        if (bytes > 0)
            ((char *)b->data)[bytes - 1] = 1;
        /* acq_rel: the buffer is handed over with what was written */
        b = atomic_exchange_explicit(&shared[r >> 20 & (N_SHARED - 1)], b,
                                     memory_order_acq_rel);
        mr__buffer_release(b);
        if (id == 0 && i % 1000 == 0)
            mr__pool_trim(host(), 0);
    }
}

static void
threads__take_and_give_each_others(void **state)
{
    mr_pool_stats before = mr__pool_stats(host()), after;

    (void)state;
    mrt_threads(N_THREADS, churn, NULL);
    for (int i = 0; i < N_SHARED; i++)
        mr__buffer_release(atomic_exchange(&shared[i], NULL));
    after = mr__pool_stats(host());
    assert_int_equal(after.active, before.active);
    mr__pool_trim(host(), 0);
    assert_int_equal(mr__pool_stats(host()).cached, 0);
}

/* ---- failures ----------------------------------------------------------- */

static bool
take_three(void *arg)
{
    mr_buffer *b[3] = {mr__buffer_new(host(), 7000),
                       mr__buffer_new(host(), 300 * KIB),
                       mr__buffer_new(host(), 3 * MIB)};

    (void)arg;
    for (int i = 0; i < 3; i++)
        mr__buffer_release(b[i]);
    mr__pool_trim(host(), 0);
    return b[0] && b[1] && b[2];
}

/* A failure of the system is tried again after a trim, so that single ones of
 * small and large blocks pass unseen. */
static void
failures__are_clean(void **state)
{
    (void)state;
    mr__pool_trim(host(), 0);
    for (int n = 0; n < 8; n++) {
        int64_t live = mr__alloc_live();

        mr__alloc_fail_after(n);
        take_three(NULL);
        mr__alloc_fail_after(-1);
        mr_error_take();
        assert_int_equal(mr__alloc_live(), live);
    }
    assert_true(take_three(NULL));
}

static bool
wrap_one(void *arg)
{
    mr_buffer *b = mr__buffer_wrap(arg, 4, NULL, NULL);

    mr__buffer_release(b);
    return b != NULL;
}

static void
wrap__fails_cleanly(void **state)
{
    char data[4];

    (void)state;
    assert_int_equal(mrt_each_failure(wrap_one, data), 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes__hold_what_they_say),
        cmocka_unit_test(blocks__have_little_slack_and_are_aligned),
        cmocka_unit_test(fresh_memory__is_poisoned_in_checked_builds),
        cmocka_unit_test(memory_that_is_nobodys__is_known_to_the_sanitizer),
        cmocka_unit_test(small__is_reused_at_once),
        cmocka_unit_test(large__is_reused_best_fit),
        cmocka_unit_test(figures__follow_what_is_held),
        cmocka_unit_test(trim__keeps_as_much_as_asked),
        cmocka_unit_test(limit__is_a_limit),
        cmocka_unit_test(limit__below_what_is_cached_trims),
        cmocka_unit_test(cache_limit__of_nothing_keeps_nothing),
        cmocka_unit_test(cache_limit__lets_the_oldest_go),
        cmocka_unit_test(machine__is_the_smallest_limit),
        cmocka_unit_test(pool__of_a_device_keeps_and_gives_back),
        cmocka_unit_test(callback__runs_once_with_the_last_reference),
        cmocka_unit_test(callback__waits_while_asked_to),
        cmocka_unit_test(callback__never_runs_on_a_worker),
        cmocka_unit_test(callbacks__that_release_each_other_do_not_recurse),
        cmocka_unit_test(embedded__frees_its_block),
        cmocka_unit_test(threads__take_and_give_each_others),
        cmocka_unit_test(failures__are_clean),
        cmocka_unit_test(wrap__fails_cleanly),
    };

    return cmocka_run_group_tests_name("array/buffer", tests, NULL, NULL);
}
