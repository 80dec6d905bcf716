/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_f32.c -- plain factorizations of float32 matrices.
 */
#define MR_DENSE_TABLE   mr__dense_f32
#define MR_DENSE_DOUBLE  0
#define MR_DENSE_COMPLEX 0
#include "cpu/dense_plain.h"
