/* SPDX-License-Identifier: Apache-2.0
 *
 * program.h -- a compiled program, from outside.
 *
 * Made once from a trace, immutable afterwards, shared by all threads.  It
 * lives in the buffer of an array (its *holder*), so that nodes and cache
 * entries keep it alive by keeping that array.
 */
#ifndef MR_COMPILE_PROGRAM_H
#define MR_COMPILE_PROGRAM_H

#include <stddef.h>

#include "graph/node.h"
#include "marram/compile.h"

typedef struct mr_program mr_program;

/* function.c: the mode that is set. */
mr_compile_mode mr__compile_mode(void);

struct mr_device_table;

/* For calls on this device (NULL: the host), from placeholders and the outputs
 * traced from them; for the host, when it lacks something (the planner brings
 * the calls' arguments there).  outs that are placeholders or captured arrays
 * are not the program's: pass only those that depend on a placeholder and are
 * none.  The result is a holder (owned as mr__node_data says), NULL on failure.
 */
mr_array *mr__program_new(const struct mr_device_table *device,
                          mr_array *const *args, int n_args,
                          mr_array *const *outs, int n_outs);
/* Another array over the same program: a reference of the caller's. */
mr_array *mr__program_holder(const mr_array *holder);
const mr_program *mr__program_of(const mr_array *holder);
/* What it holds, in bytes: when it was made, and in layouts since. */
size_t mr__program_bytes(const mr_program *p);
size_t mr__program_layout_bytes(const mr_program *p);
/* A call: the tuple node, owned as mr__node_new says. */
mr_array *mr__program_call(mr_array *holder, mr_array *const *args);

#endif
