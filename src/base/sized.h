/* SPDX-License-Identifier: Apache-2.0
 *
 * sized.h -- structures that grow: the first member, `size`, says how much of
 * one its caller knows of.
 *
 * A caller that was compiled against an older header has less of it than we,
 * one against a newer header more; both get on with what is common.  So a size
 * that was not filled in is an error: it says nothing of what may be touched.
 */
#ifndef MR_BASE_SIZED_H
#define MR_BASE_SIZED_H

#include <stddef.h>

#include "marram/types.h"

/* Copy what `given` has into ours, of `bytes` bytes; the rest of ours stays.
 * type is its name, for the message. */
mr_code mr__sized_take(void *ours, size_t bytes, const void *given,
                       const char *type);
/* Copy ours into `out` as far as it goes; out's size becomes what was copied.
 */
mr_code mr__sized_give(void *out, const void *ours, size_t bytes,
                       const char *type);

#endif
