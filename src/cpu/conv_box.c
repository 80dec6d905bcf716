/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_box.c -- the axes of a convolution, cut into boxes of outputs, and
 * groups that go together.
 *
 * Called by: conv_matrix.c, conv_matrix_back.c.
 */
#include "cpu/conv_box.h"

#include "base/integers.h"
#include "kernels/conv_matrix.h"

void
mr__conv_axes(const mr_conv *c, mr_conv_axis *axis)
{
    int first = MR_CONV_AXES - c->n_spatial;

    for (int i = 0; i < MR_CONV_AXES; i++)
        axis[i] = (mr_conv_axis){.in = 1,
                                 .out = 1,
                                 .kernel = 1,
                                 .stride = 1,
                                 .dilation = 1,
                                 .spread = 1};
    axis[0].in = axis[0].out = c->batch;
    for (int i = 0; i < c->n_spatial; i++)
        axis[first + i] = (mr_conv_axis){.in = c->in[i],
                                         .out = c->out[i],
                                         .kernel = c->kernel[i],
                                         .stride = c->p->stride.v[i],
                                         .dilation = c->p->kernel_dilation.v[i],
                                         .spread = c->p->input_dilation.v[i],
                                         .low = c->p->low.v[i]};
}

void
mr__conv_box(const mr_conv_axis *axis, int64_t number, int64_t *from,
             int64_t *n)
{
    for (int i = MR_CONV_LAST; i >= 0; i--) {
        from[i] = number % axis[i].parts * axis[i].len;
        n[i] = mr__min(axis[i].len, axis[i].out - from[i]);
        number /= axis[i].parts;
    }
}

mr_conv_blocks
mr__conv_blocks(const mr_conv *c, int64_t channels)
{
    int64_t most = channels >= MR_CONV_STEP ? 1 : MR_CONV_STEP / channels;
    int64_t together = mr__min(most, c->p->groups);

    return (mr_conv_blocks){.together = together,
                            .n = (c->p->groups - 1) / together + 1,
                            .channels = together * channels,
                            .cols = together * c->group_outputs};
}
