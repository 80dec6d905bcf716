/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_box.h -- the axes of a convolution, cut into boxes of outputs, and
 * groups that go together: what both ways on the matrix unit share.
 */
#ifndef MR_CPU_CONV_BOX_H
#define MR_CPU_CONV_BOX_H

#include <stdint.h>

#include "cpu/conv.h"

/* The item, then space, the line last. */
enum { MR_CONV_AXES = MR_CONV_SPATIAL + 1, MR_CONV_LAST = MR_CONV_AXES - 1 };

typedef struct mr_conv_axis {
    int64_t in, out, kernel, stride, dilation, spread, low;
    int64_t len, parts; /* outputs of a box, boxes */
    /* conv_matrix.c */
    int64_t phases, step;
    int64_t band;  /* entries of the input that a box sees */
    int64_t bytes; /* from one to the next, in the copy */
    /* conv_matrix_back.c */
    int64_t copies, shift; /* remainders that there are; the farthest tap */
    int64_t pitch;         /* positions from one to the next */
} mr_conv_axis;

/* All of them; those that the convolution lacks have one entry. */
void mr__conv_axes(const mr_conv *c, mr_conv_axis *axis);

/* The outputs of a box: along each axis the first, how many. */
void mr__conv_box(const mr_conv_axis *axis, int64_t number, int64_t *from,
                  int64_t *n);

/* Blocks of groups that go together, since one does not fill a step. */
typedef struct mr_conv_blocks {
    int64_t together, n;    /* groups of a block; blocks */
    int64_t channels, cols; /* of a block */
} mr_conv_blocks;

/* Of groups of so many channels. */
mr_conv_blocks mr__conv_blocks(const mr_conv *c, int64_t channels);

#endif
