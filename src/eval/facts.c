/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.c -- what the process runs on, for `python -m marram` and the command.
 */
#include "base/cpus.h"
#include "base/log.h"
#include "gen/kernels_digest.h"
#include "kernels/program.h"
#include "kernels/tier/tier.h"
#include "marram/eval.h"

const char *
mr_cpu_tier(void)
{
    return mr__cpu_tier();
}

const char *
mr_kernels_digest(void)
{
    return MR_KERNELS_DIGEST;
}

#define MR_NAME(id, name) ", " #name

const char *
mr_kernels_tiers(void)
{
#if defined(__x86_64__) && defined(__linux__)
    static const char names[] = MR_TIERS(MR_NAME) ", amx"; /* dispatch.c */
#else
    static const char names[] = MR_TIERS(MR_NAME);
#endif

    return names + 2;
}

int
mr_num_threads(void)
{
    int n = mr__cpus_to_use();

    mr__log_flush(); /* of a wish that it cannot use */
    return n;
}
