/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_f64.c -- plain factorizations of float64 matrices.
 */
#define MR_DENSE_TABLE   mr__dense_f64
#define MR_DENSE_DOUBLE  1
#define MR_DENSE_COMPLEX 0
#include "cpu/dense_plain.h"
