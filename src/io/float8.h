/* SPDX-License-Identifier: Apache-2.0
 *
 * float8.h -- the 8-bit floats of files, widened to types that hold all their
 * values.
 */
#ifndef MR_IO_FLOAT8_H
#define MR_IO_FLOAT8_H

#include <stddef.h>
#include <stdint.h>

/* n elements each; out is 16 bits wide. */
void mr__float16_from_e4m3(void *out, const uint8_t *in, size_t n);
void mr__float16_from_e5m2(void *out, const uint8_t *in, size_t n);
void mr__bfloat16_from_e8m0(void *out, const uint8_t *in, size_t n);

#endif
