/* SPDX-License-Identifier: Apache-2.0
 *
 * fft32.c -- Fourier transforms in float32, once per instruction set.
 */
#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#define MR_TABLE      mr__fft_f32
#include "kernels/tier/fft.h"
