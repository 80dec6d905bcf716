/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.h -- the programs of a function as text.
 */
#ifndef MR_COMPILE_EXPLAIN_H
#define MR_COMPILE_EXPLAIN_H

#include <stdint.h>

/* To be freed with mr_text_free; NULL without memory. */
char *mr__explain(uint64_t function, const char *name);

#endif
