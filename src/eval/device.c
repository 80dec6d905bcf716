/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c -- the registry of devices.
 *
 * A table is registered once and lives for ever.  Its kernel rows are put in
 * an array by operator id, so a look-up is one load.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "eval/fork.h"
#include "eval/registry.h"
#include "kernels/program.h"
#include "marram/error.h"
#include "marram/eval.h"

#define MAX_DEVICES 16
#define MAX_OPS     1024

typedef struct entry {
    const mr_device_table *table;
    const mr_kernel *by_op[MAX_OPS];
} entry;

/* Filled under the lock; a count's release store publishes the entry and
 * pairs with the acquire loads of readers. */
static entry entries[MAX_DEVICES];
static _Atomic int n_entries;
static mr_lock lock = MR_LOCK_INIT(MR_RANK_REGISTRY, "devices");

/* The one device that is always there: linked in, registers itself. */
mr_code mr__cpu_register(void);

static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;
static mr_code cpu_code;

static void
register_cpu(void)
{
    cpu_code = mr__cpu_tier() == NULL ? MR_E_VALUE : mr__cpu_register();
    if (cpu_code != MR_OK)
        (void)mr_error_take(); /* mr__device_find says it to whoever asks */
}

mr_code
mr__device_register(const mr_device_table *t)
{
    int n;
    entry *e;

    if (t->abi != MR_DEVICE_ABI)
        return mr__fail(MR_E_DEVICE,
                        "the provider %s has table version %u, this library "
                        "needs %u",
                        t->name, t->abi, MR_DEVICE_ABI);
    mr__lock_take(&lock);
    n = atomic_load_explicit(&n_entries, memory_order_relaxed);
    if (n < MAX_DEVICES) {
        e = &entries[n];
        e->table = t;
        for (const mr_kernel *k = t->kernels; k->run != NULL; k++)
            if (k->op < MAX_OPS)
                e->by_op[k->op] = k;
        atomic_store_explicit(&n_entries, n + 1, memory_order_release);
    }
    mr__lock_drop(&lock);
    return n < MAX_DEVICES
               ? MR_OK
               : mr__fail(MR_E_DEVICE,
                          "there are %d devices already, no more are possible",
                          MAX_DEVICES);
}

static const entry *
entry_of(const mr_device_table *t)
{
    int n = atomic_load_explicit(&n_entries, memory_order_acquire);

    for (int i = 0; i < n; i++)
        if (entries[i].table == t)
            return &entries[i];
    return NULL;
}

const mr_kernel *
mr__device_kernel(const mr_device_table *t, uint16_t op)
{
    const entry *e = entry_of(t);

    return e != NULL && op < MAX_OPS ? e->by_op[op] : NULL;
}

static const mr_device_table *
search(mr_device d)
{
    int n = atomic_load_explicit(&n_entries, memory_order_acquire);

    for (int i = 0; i < n; i++)
        if (entries[i].table->device.type == d.type &&
            entries[i].table->device.index == d.index)
            return entries[i].table;
    return NULL;
}

const mr_device_table *
mr__device_find(mr_device d)
{
    const mr_device_table *t;

    pthread_once(&cpu_once, register_cpu);
    if (cpu_code != MR_OK)
        return mr__cpu_tier() == NULL
                   ? NULL
                   : mr__fail_null(cpu_code, "the CPU device could not start");
    t = search(d);
    if (t == NULL)
        return mr__fail_null(
            MR_E_VALUE,
            "there is no device %s:%d here: mr_device_count says what is",
            d.type == MR_CPU   ? "cpu"
            : d.type == MR_GPU ? "gpu"
                               : "test",
            (int)d.index);
    return t;
}

int
mr__device_count_of(mr_device_type type)
{
    int n, k = 0;

    pthread_once(&cpu_once, register_cpu);
    n = atomic_load_explicit(&n_entries, memory_order_acquire);
    for (int i = 0; i < n; i++)
        k += entries[i].table->device.type == type;
    return k;
}

bool
mr_device_available(mr_device d)
{
    pthread_once(&cpu_once, register_cpu);
    return search(d) != NULL;
}

int
mr_device_count(mr_device_type t)
{
    return mr__device_count_of(t);
}

void
mr__devices_fork_child(void)
{
    mr__lock_fork_child(&lock);
}
