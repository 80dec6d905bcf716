/* SPDX-License-Identifier: Apache-2.0
 *
 * testing.c -- what tests ask about evaluation, and nobody else should.
 */
#include "marram/sys/testing.h"
#include "eval/registry.h"
#include "graph/node.h"

mr_stream
mr_test_stream_of(const mr_array *x)
{
    return (mr_stream){x->stream};
}

mr_device
mr_test_device_of(const mr_array *x)
{
    if (mr__state(x) != MR_DONE || x->buffer == NULL)
        return (mr_device){MR_CPU, -1};
    return mr__device_of_space(x->buffer->space)->device;
}
