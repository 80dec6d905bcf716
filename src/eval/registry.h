/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h -- the devices that there are.
 */
#ifndef MR_EVAL_REGISTRY_H
#define MR_EVAL_REGISTRY_H

#include "eval/device.h"

/* The row for an operator, or NULL.  No lock. */
const mr_kernel *mr__device_kernel(const mr_device_table *t, uint16_t op);
/* The table of a device, or NULL with MR_E_DEVICE set.  Registers the CPU at
 * the first call. */
const mr_device_table *mr__device_find(mr_device d);
int mr__device_count_of(mr_device_type t);

#endif
