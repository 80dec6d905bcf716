/* SPDX-License-Identifier: Apache-2.0
 *
 * elementwise.h -- the one definition of each scalar operation.
 *
 * k_add(V, V) and the like, for the kind of dtype that the including file
 * names in MR_KIND; written in the vector dialect, whose meaning the including
 * file gives beforehand (tier/lanes.h: GCC and Clang vector extensions):
 *
 *   V  the values of one vector (R, a vector of real lanes, or a pair of them
 *      for complex numbers), M a mask of lanes, U the lanes' unsigned bits
 *   v_ m_ u_ C() INLINE: see tier/lanes.h and tier/floats.h
 *
 * Each kind lists what it has in MR_MAP_...(X), by operands and result; the
 * tables of kernels are filled from these lists.
 */
#ifndef MR_KERNELS_ELEMENTWISE_H
#define MR_KERNELS_ELEMENTWISE_H

#define MR_KIND_BOOL    0
#define MR_KIND_INTEGER 1
#define MR_KIND_FLOAT   2
#define MR_KIND_COMPLEX 3

#if MR_KIND == MR_KIND_BOOL
#include "kernels/elementwise_bool.h"
#elif MR_KIND == MR_KIND_INTEGER
#include "kernels/elementwise_integer.h"
#elif MR_KIND == MR_KIND_FLOAT
#include "kernels/elementwise_float.h"
#else
#include "kernels/elementwise_complex.h"
#endif

#endif
