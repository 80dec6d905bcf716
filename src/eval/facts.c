/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.c -- what the process runs on, for `python -m marram` and the command.
 */
#include "base/cpus.h"
#include "kernels/program.h"
#include "marram/eval.h"

const char *
mr_cpu_tier(void)
{
    return mr__cpu_tier();
}

int
mr_num_threads(void)
{
    return mr__cpus_to_use();
}
