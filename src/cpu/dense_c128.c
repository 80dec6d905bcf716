/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_c128.c -- plain factorizations of complex128 matrices.
 */
#define MR_DENSE_TABLE   mr__dense_c128
#define MR_DENSE_DOUBLE  1
#define MR_DENSE_COMPLEX 1
#include "cpu/dense_plain.h"
