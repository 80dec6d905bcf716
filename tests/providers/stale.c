/* SPDX-License-Identifier: Apache-2.0
 *
 * stale.c -- a provider of another build: it must be refused.
 *
 * Its MR_BUILD_HASH is set by tests/CMakeLists.txt.
 */
#include "eval/device.h"

mr_code mr_provider_init(const mr_host *h);

__attribute__((visibility("default"))) mr_code
mr_provider_init(const mr_host *h)
{
    return mr__host_check(h, "stale");
}
