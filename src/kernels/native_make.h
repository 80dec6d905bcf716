/* SPDX-License-Identifier: Apache-2.0
 *
 * native_make.h -- segments from a schedule.  Private to this folder.
 */
#ifndef MR_KERNELS_NATIVE_MAKE_H
#define MR_KERNELS_NATIVE_MAKE_H

#include "base/arena.h"
#include "kernels/native.h"
#include "kernels/schedule.h"

/* Rows of fewer points are not worth going over one by one. */
#define MR_NATIVE_NARROW 64

/* MAP: do compiled segments read and write all operands where they are? */
bool mr__native_is_direct(const mr_schedule *s);

/* The segments of each pass, in the arena; no passes when the program is not
 * covered, NULL without memory.  The schedule is changed to what the segments
 * want: which operands are read and written in place, slots, spreading. */
mr_native *mr__native_make(mr_schedule *s, mr_arena *arena);

#endif
