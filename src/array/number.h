/* SPDX-License-Identifier: Apache-2.0
 *
 * number.h -- single elements as numbers: reading, converting, writing.
 *
 * The rules are those of casts: integers wrap, floats to integers truncate and
 * saturate and take NaN to 0, floats round half to even once, complex to real
 * drops the imaginary part, bool is "not zero" (of either part).  For scalars
 * and for copying out; arrays are cast by kernels.
 */
#ifndef MR_ARRAY_NUMBER_H
#define MR_ARRAY_NUMBER_H

#include <stdint.h>

#include "marram/types.h"

mr_scalar mr__number_read(mr_dtype t, const void *at);
void mr__number_write(mr_dtype t, void *at, mr_scalar v);

double mr__number_to_f64(mr_scalar v);
float mr__number_to_f32(mr_scalar v);
int64_t mr__number_to_i64(mr_scalar v);

float mr__f16_to_f32(uint16_t bits);
float mr__bf16_to_f32(uint16_t bits);

#endif
