/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.c -- what a long life of many arrays, streams and large graphs leaves
 * behind in the process: mappings, resident pages, threads.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "marram/marram.h"
#include "support/base.h"

/* Sanitizers keep pages and mappings of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- the process -------------------------------------------------------- */

static int64_t
resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long long all = 0, resident = 0;

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld %lld", &all, &resident), 2);
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

static int64_t
n_mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    int64_t n = 0;
    int c;

    assert_non_null(f);
    while ((c = fgetc(f)) != EOF)
        n += c == '\n';
    fclose(f);
    return n;
}

static int
n_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = -2; /* . and .. */

    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

/* ---- arrays ------------------------------------------------------------- */

/* An evaluated array of so many bytes, every page of it written. */
static mr_array *
filled(int64_t bytes, float value)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = mr_full(MR_SHAPE(bytes / 4), (double)value, MR_FLOAT32);

    x = mr_retain(mr_contiguous(x, false));
    assert_int_equal(mr_eval(x), MR_OK);
    mr_scope_end(s);
    return x;
}

static void
live_arrays(int n, int64_t bytes)
{
    mr_array **x = calloc((size_t)n, sizeof *x);
    int64_t before = n_mappings();

    assert_non_null(x);
    for (int i = 0; i < n; i++)
        x[i] = filled(bytes, (float)i);
    /* vm.max_map_count is 65,530 unless somebody raised it */
    assert_true(n_mappings() - before < 4096);
    for (int i = 0; i < n; i += n / 10) {
        float v;

        assert_int_equal(mr_array_size(x[i]), bytes / 4);
        memcpy(&v, mr_array_data(x[i]), sizeof v);
        assert_true(v == (float)i);
    }
    for (int i = 0; i < n; i++)
        mr_release(x[i]);
    free(x);
    mr_memory_clear_cache();
}

static void
many_small_arrays__share_mappings(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    live_arrays(200000, 4096);
}

static void
many_large_arrays__share_mappings(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    live_arrays(2000, 1 << 20);
}

static void
clear_cache__gives_pages_back_at_once(void **state)
{
    const int64_t bytes = INT64_C(256) << 20;
    size_t old;
    int64_t full, cached;
    mr_array *x;

    (void)state;
    if (SANITIZED)
        skip();
    old = mr_memory_set_cache_limit((size_t)2 * bytes);
    mr_memory_clear_cache();
    x = filled(bytes, 1.0f);
    full = resident_bytes();
    mr_release(x);
    cached = resident_bytes();
    assert_true(mr_memory_cached() >= (size_t)bytes);
    mr_memory_clear_cache();
    assert_true(mr_memory_cached() == 0);
    assert_true(cached > full - bytes / 4); /* the cache had kept it */
    assert_true(resident_bytes() < full - bytes * 3 / 4);
    mr_memory_set_cache_limit(old);
}

/* ---- one large evaluation ----------------------------------------------- */

/* 10,000 results of 1 MiB that are summed as they come: a unit of 10 GB unless
 * it is taken in bounded batches. */
static void
huge_graph__fits_a_small_limit(void **state)
{
    enum { N = SANITIZED ? 1000 : 10000, LIMIT = 64 << 20 };
    size_t start = mr_memory_active();
    size_t old = mr_memory_set_limit(start + LIMIT);
    mr_scope s = mr_scope_begin();
    mr_array *one = mr_ones(MR_SHAPE(512, 512), MR_FLOAT32);
    mr_array *total = mr_array_from_f32((float[]){0}, MR_SCALAR_SHAPE);
    float got;

    (void)state;
    assert_int_equal(mr_eval(one), MR_OK);
    mr_memory_reset_peak();
    for (int i = 0; i < N; i++) {
        mr_scope each = mr_scope_begin();
        /* a scan does not fuse: each has memory of its own */
        mr_array *part = mr_cumsum(mr_add(one, mr_float(i % 3)), 1, false, true,
                                   MR_DTYPE_DEFAULT);

        total = mr_scope_return(
            each, mr_add(total, mr_max(part, MR_AXES_ALL, false)));
        mr_scope_end(each);
    }
    assert_int_equal(mr_array_copy_f32(total, &got, 1), MR_OK);
    /* the last of 512 of 1 + i % 3: the sum of N such */
    assert_true(got == 512.0f * (6.0f * (N / 3) + 1.0f));
    assert_true(mr_memory_peak() < start + LIMIT);
    mr_scope_end(s);
    mr_memory_set_limit(old);
}

/* ---- streams ------------------------------------------------------------ */

static void
streams__come_and_go_a_hundred_thousand_times(void **state)
{
    mr_array *x = filled(64, 1.0f);
    int64_t resident = 0;
    int threads = 0;

    (void)state;
    for (int i = 0; i < (SANITIZED ? 10000 : 100000); i++) {
        mr_stream s = mr_stream_new((mr_device){MR_CPU, 0}), outer;

        assert_true(s.id != 0);
        if (i % 1000 == 0) { /* and is used */
            mr_array *y;

            outer = mr_stream_scope(s);
            y = mr_add(x, x);
            mr_stream_scope(outer);
            assert_int_equal(mr_eval(y), MR_OK);
            mr_release(y);
        }
        mr_stream_free(s);
        if (i == 1000) {
            resident = resident_bytes();
            threads = n_threads();
        }
    }
    if (!SANITIZED)
        assert_true(resident_bytes() - resident < (1 << 20));
    assert_int_equal(n_threads(), threads);
    mr_release(x);
}

static void
handles__are_small_and_compare_by_value(void **state)
{
    mr_stream s = mr_stream_new((mr_device){MR_CPU, 0});

    (void)state;
    assert_true(sizeof(mr_device) <= 8 && sizeof(mr_stream) <= 8);
    assert_true(mr_stream_default().id == mr_stream_default().id);
    assert_true(s.id != mr_stream_default().id);
    assert_int_equal(mr_stream_device(s).type, MR_CPU);
    assert_int_equal(mr_stream_device(s).index, 0);
    mr_stream_free(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clear_cache__gives_pages_back_at_once),
        cmocka_unit_test(many_small_arrays__share_mappings),
        cmocka_unit_test(many_large_arrays__share_mappings),
        cmocka_unit_test(huge_graph__fits_a_small_limit),
        cmocka_unit_test(streams__come_and_go_a_hundred_thousand_times),
        cmocka_unit_test(handles__are_small_and_compare_by_value),
    };

    return cmocka_run_group_tests_name("eval/limits", tests, NULL, NULL);
}
