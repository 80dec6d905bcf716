/* SPDX-License-Identifier: Apache-2.0
 *
 * random_programs.c -- random graphs, streams, devices and threads against one
 * thread's answer, for half a minute; tests/slow/ goes on for ten.
 */
#include "eval/random_programs.h"

static void
random_programs__equal_one_threads_answer(void **state)
{
    (void)state;
    rp_run(30);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs__equal_one_threads_answer),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("eval/random_programs", tests, NULL,
                                       NULL);
}
