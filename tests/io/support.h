/* SPDX-License-Identifier: Apache-2.0
 *
 * support.h -- what the tests of files share.
 */
#ifndef MRT_IO_SUPPORT_H
#define MRT_IO_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "marram/array.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/io.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/sys/testing.h"
#include "marram/tree.h"
#include "support/scoped.h"

static char folder[64];

/* A folder of the program's own: setup and teardown of the group. */
static inline int
make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/mrt-io-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int
remove_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A path in it, in one of a few static places. */
static inline const char *
in_folder(const char *name)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];

    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static inline void
write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline size_t
read_file(const char *path, void *data, size_t room)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    assert_non_null(f);
    n = fread(data, 1, room, f);
    fclose(f);
    return n;
}

/* How many files the folder holds. */
static inline int
files_in_folder(void)
{
    char command[160], text[32] = "";
    FILE *p;

    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    p = popen(command, "r");
    assert_non_null(p);
    assert_non_null(fgets(text, sizeof text, p));
    pclose(p);
    return atoi(text);
}

static inline mr_array *
good(mr_array *x)
{
    if (!x) {
        mr_error e = mr_error_take();

        print_message("%s: %s\n", mr_code_name(e.code), e.message);
        fail();
    }
    return x;
}

static inline mr_tree *
good_tree(mr_tree *x)
{
    if (!x) {
        mr_error e = mr_error_take();

        print_message("%s: %s\n", mr_code_name(e.code), e.message);
        fail();
    }
    return x;
}

static inline void
assert_done(mr_code code)
{
    if (code != MR_OK) {
        mr_error e = mr_error_take();

        print_message("%s: %s\n", mr_code_name(e.code), e.message);
        fail();
    }
}

static inline void
assert_refused(const void *result, mr_code code, const char *text)
{
    mr_error e = mr_error_take();

    assert_null(result);
    if (e.code == code && strstr(e.message, text))
        return;
    print_message("%s: %s (wanted %s: %s)\n", mr_code_name(e.code), e.message,
                  mr_code_name(code), text);
    fail();
}

static inline void
assert_values(mr_array *x, mr_dtype dtype, int n, const double *want)
{
    double got[64];

    good(x);
    assert_int_equal(mr_array_dtype(x), dtype);
    assert_int_equal(mr_array_size(x), n);
    assert_done(mr_array_copy_f64(x, got, n));
    for (int i = 0; i < n; i++) {
        if (isnan(want[i]) ? !isnan(got[i]) : got[i] != want[i]) {
            print_message("[%d]: got %.17g, want %.17g\n", i, got[i], want[i]);
            fail();
        }
    }
}
#define VALUES(x, dtype, ...)                                                  \
    assert_values((x), (dtype),                                                \
                  (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),     \
                  (double[]){__VA_ARGS__})

#endif
