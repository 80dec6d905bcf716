/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus.c -- tests of how many processors are used.
 */
#include "base/cpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "support/base.h"

static char root[64];

static void
put(const char *path, const char *text)
{
    char full[256];
    FILE *f;

    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL;
         at++) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int
make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/marram_cpus_XXXXXX");
    return mkdtemp(root) == NULL;
}

static int
remove_root(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void
quota__version_2_rounds_up(void **state)
{
    (void)state;
    put("cpu.max", "max 100000\n");
    assert_int_equal(mr__cpus_quota("0::/\n", root), 0);
    put("cpu.max", "250000 100000\n");
    assert_int_equal(mr__cpus_quota("0::/\n", root), 3);
    put("cpu.max", "1000 100000\n");
    assert_int_equal(mr__cpus_quota("0::/\n", root), 1);
}

static void
quota__smallest_of_all_levels_binds(void **state)
{
    (void)state;
    put("a/b/c/cpu.max", "800000 100000\n");
    put("a/b/cpu.max", "400000 100000\n");
    put("a/cpu.max", "max 100000\n");
    put("cpu.max", "max 100000\n");
    assert_int_equal(mr__cpus_quota("0::/a/b/c\n", root), 4);
    assert_int_equal(mr__cpus_quota("0::/a\n", root), 0);
    /* The group's own folder is not there, as in a container. */
    assert_int_equal(mr__cpus_quota("0::/a/b/x/y\n", root), 4);
}

static void
quota__version_1_is_read_from_its_hierarchy(void **state)
{
    (void)state;
    const char *group = "12:cpuset:/\n5:cpu,cpuacct:/docker/f00\n1:memory:/m\n";

    put("cpu,cpuacct/docker/f00/cpu.cfs_quota_us", "150000\n");
    put("cpu,cpuacct/docker/f00/cpu.cfs_period_us", "50000\n");
    put("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(mr__cpus_quota(group, root), 3);
    assert_int_equal(mr__cpus_quota("5:cpu,cpuacct:/\n", root), 0);
    assert_int_equal(mr__cpus_quota("5:cpuset,cpuacct:/docker/f00\n", root), 0);
}

static void
quota__odd_text_is_no_quota(void **state)
{
    (void)state;
    put("cpu.max", "nonsense\n");
    assert_int_equal(mr__cpus_quota("0::/\n", root), 0);
    assert_int_equal(mr__cpus_quota("", root), 0);
    assert_int_equal(mr__cpus_quota("::\n0\n:\n", "/nowhere"), 0);
}

static char warning[512];

static void
keep_line(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    snprintf(warning, sizeof warning, "%s", line);
}

static void
to_use__obeys_the_variable_and_warns_of_a_bad_one(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "0", "-3", "four", "3x", "1025", "1e3", "99999999999999999999"};
    int found;

    mr__log_set_handler(keep_line, NULL);
    unsetenv("MARRAM_NUM_THREADS");
    found = mr__cpus_to_use();
    assert_in_range(found, 1, MR_CPUS_MAX);
    setenv("MARRAM_NUM_THREADS", "", 1);
    assert_int_equal(mr__cpus_to_use(), found);
    setenv("MARRAM_NUM_THREADS", "37", 1);
    assert_int_equal(mr__cpus_to_use(), 37);
    mr__log_flush();
    assert_string_equal(warning, "");
    for (size_t i = 0; i < MRT_COUNT(bad); i++) {
        warning[0] = '\0';
        setenv("MARRAM_NUM_THREADS", bad[i], 1);
        assert_int_equal(mr__cpus_to_use(), found);
        mr__log_flush();
        assert_non_null(strstr(warning, bad[i]));
    }
}

static void
affinity__bounds_the_count(void **state)
{
    (void)state;
    mr_cpu_mask all, one;
    int n = mr__cpus_affinity(&all), first = 0;

    assert_true(n >= 1);
    unsetenv("MARRAM_NUM_THREADS");
    while (!CPU_ISSET_S(first, sizeof all, all.set))
        first++;
    CPU_ZERO_S(sizeof one, one.set);
    CPU_SET_S(first, sizeof one, one.set);
    assert_int_equal(sched_setaffinity(0, sizeof one, one.set), 0);
    assert_int_equal(mr__cpus_to_use(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, all.set), 0);
}

int
main(void)
{
#define WITH_ROOT(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(quota__version_2_rounds_up),
        WITH_ROOT(quota__smallest_of_all_levels_binds),
        WITH_ROOT(quota__version_1_is_read_from_its_hierarchy),
        WITH_ROOT(quota__odd_text_is_no_quota),
        cmocka_unit_test(to_use__obeys_the_variable_and_warns_of_a_bad_one),
        cmocka_unit_test(affinity__bounds_the_count),
    };

    return cmocka_run_group_tests_name("base/cpus", tests, NULL, NULL);
}
