/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.h -- running a block program over the pool.
 */
#ifndef MR_CPU_BLOCKS_H
#define MR_CPU_BLOCKS_H

#include <stddef.h>

#include "base/arena.h"
#include "kernels/program.h"
#include "marram/types.h"

/* The device table's entries; the launch is normalised.  The workspace is for
 * partial results of split rows, and is aligned to 64 bytes. */
size_t mr__cpu_block_workspace(const mr_block_code *code,
                               const mr_block_launch *launch);
mr_code mr__cpu_run_block(const mr_block_code *code,
                          const mr_block_launch *launch, void *workspace);
/* Its block_ready and run_ready. */
const void *mr__cpu_block_ready(const mr_block_code *code,
                                const mr_block_launch *launch, mr_arena *arena,
                                size_t *workspace);
mr_code mr__cpu_run_ready(const void *ready, void *const *in, void *const *out,
                          void *workspace);

#endif
