/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.h -- numbers here and there, for the tests of devices.
 */
#ifndef MRT_EVAL_DEVICES_H
#define MRT_EVAL_DEVICES_H

#include "support/device.h"
#include "support/mrt.h"

#include "graph/node.h"

static inline mr_array *
numbers(int64_t n)
{
    return mr_arange(MR_INTEGER(0), MR_INTEGER(n), MR_INTEGER(1), MR_FLOAT32);
}

/* 0, 1, ... in host memory. */
static inline mr_array *
host_numbers(int64_t n)
{
    mr_array *x = numbers(n);

    assert_int_equal(mr_eval(x), MR_OK);
    return x;
}

/* 0, 1, ... plus 1, in the memory of far device i. */
static inline mr_array *
far_numbers(int i, int64_t n)
{
    mr_stream s = mrt_on(MRT_FAR(i));
    mr_array *x = mr_add(numbers(n), mr_float(1.0));

    assert_int_equal(mr_eval(x), MR_OK);
    mrt_off(s);
    assert_int_not_equal(x->buffer->space, 0);
    return x;
}

static inline void
expect_from(mr_array *x, float first, float step)
{
    float want[64];
    int64_t n = mr_array_size(x);

    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++)
        want[i] = first + step * (float)i;
    mrt_assert_f32(x, want, n);
}

#endif
