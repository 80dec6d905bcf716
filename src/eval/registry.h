/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h -- the devices that there are, and the providers of more.
 */
#ifndef MR_EVAL_REGISTRY_H
#define MR_EVAL_REGISTRY_H

#include "eval/device.h"

/* The row for an operator, or NULL.  No lock. */
const mr_kernel *mr__device_kernel(const mr_device_table *t, uint16_t op);
/* The table of a device, or NULL with an error set.  Registers the CPU at the
 * first call, and loads providers when another device is asked for. */
const mr_device_table *mr__device_find(mr_device d);
/* The CPU's. */
const mr_device_table *mr__device_host(void);
int mr__device_count_of(mr_device_type t);
/* Table i in the order of registration, 0 is the CPU; NULL past the end. */
const mr_device_table *mr__device_at(int i);
/* The address space of a device's memory: 0 is the host. */
uint16_t mr__device_space(const mr_device_table *t);
/* The device whose memory it is. */
const mr_device_table *mr__device_of_space(uint16_t space);
/* The stream that brings data to it and away from it. */
uint32_t mr__device_transfers(const mr_device_table *t);
/* Its queues went with another process: this one is a fork. */
bool mr__device_is_lost(const mr_device_table *t);

/* providers.c: loads all, once. */
void mr__providers_load(void);
/* What a provider of another build is answered: MR_E_DEVICE. */
mr_code mr__provider_refuse(const char *name, const char *build);

static inline bool
mr__device_has_queues(const mr_device_table *t)
{
    return t->launch != NULL;
}

#endif
