/* SPDX-License-Identifier: Apache-2.0
 *
 * scoped.h -- a test in a scope of its own: what it makes ends with it.
 */
#ifndef MRT_SUPPORT_SCOPED_H
#define MRT_SUPPORT_SCOPED_H

#include "base/alloc.h"
#include "marram/error.h"
#include "marram/scope.h"
#include "support/base.h"

static mr_scope test_scope;
static int64_t live_before;

static inline int
open_scope(void **state)
{
    (void)state;
    mr_error_take();
    live_before = mr__alloc_live();
    test_scope = mr_scope_begin();
    return 0;
}

static inline int
close_scope(void **state)
{
    (void)state;
    return mr_scope_end(test_scope) == MR_OK ? 0 : -1;
}

/* close_scope of a test after which nothing more may be alive than before. */
static inline int
close_scope_whole(void **state)
{
    int rc = close_scope(state);

    assert_int_equal(mr__alloc_live(), live_before);
    return rc;
}

#define SCOPED(test)                                                           \
    cmocka_unit_test_setup_teardown(test, open_scope, close_scope)
#define SCOPED_WHOLE(test)                                                     \
    cmocka_unit_test_setup_teardown(test, open_scope, close_scope_whole)

#endif
