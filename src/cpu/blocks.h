/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.h -- running a block program over the pool.
 */
#ifndef MR_CPU_BLOCKS_H
#define MR_CPU_BLOCKS_H

#include "kernels/program.h"
#include "marram/types.h"

/* The device table's run_block; the launch is normalised. */
mr_code mr__cpu_run_block(const mr_block_code *code,
                          const mr_block_launch *launch);

#endif
