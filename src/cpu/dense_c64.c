/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_c64.c -- plain factorizations of complex64 matrices.
 */
#define MR_DENSE_TABLE   mr__dense_c64
#define MR_DENSE_DOUBLE  0
#define MR_DENSE_COMPLEX 1
#include "cpu/dense_plain.h"
