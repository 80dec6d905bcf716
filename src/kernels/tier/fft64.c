/* SPDX-License-Identifier: Apache-2.0
 *
 * fft64.c -- Fourier transforms in float64, once per instruction set.
 */
#define MR_LANE_BITS  64
#define MR_LANE_FLOAT 1
#define MR_TABLE      mr__fft_f64
#include "kernels/tier/fft.h"
