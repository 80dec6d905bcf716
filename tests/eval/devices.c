/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.c -- devices with memory and queues of their own: where data is, how
 * it gets there, and that nobody has to say so.
 *
 * The far device's addresses cannot be read on the host: what forgets to bring
 * data over ends with a signal, what reads too early reads 0xDB.
 */
#include <string.h>

#include "support/device.h"
#include "support/mrt.h"

#include "base/error.h"
#include "eval/registry.h"
#include "marram/sys/info.h"

static mr_array *
numbers(int64_t n)
{
    return mr_arange(MR_INTEGER(0), MR_INTEGER(n), MR_INTEGER(1), MR_FLOAT32);
}

static mr_array *
host_numbers(int64_t n)
{
    mr_array *x = numbers(n);

    assert_int_equal(mr_eval(x), MR_OK);
    return x;
}

static void
far__adds_what_lies_on_the_host(void **state)
{
    (void)state;
    mr_array *a = host_numbers(5), *y;
    mr_stream s = mrt_on(MRT_FAR(0));

    y = mr_add(a, a);
    mrt_assert_f32(y, (float[]){0, 2, 4, 6, 8}, 5);
    mrt_off(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(far__adds_what_lies_on_the_host),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("eval/devices", tests, NULL, NULL);
}
