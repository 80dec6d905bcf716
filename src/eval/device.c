/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c -- the registry of devices.
 *
 * A table is registered once and lives for ever.  Its kernel rows are put in
 * an array by operator id, so a look-up is one load.  Entry 0 is the CPU; an
 * entry's index is the number of its address space.
 *
 * Called by: stream.c, reserve.c, transfer.c, providers.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "eval/fork.h"
#include "eval/registry.h"
#include "eval/stream.h"
#include "kernels/program.h"
#include "marram/error.h"
#include "marram/eval.h"

#define MAX_DEVICES MR_MAX_SPACES
#define MAX_OPS     1024

typedef struct entry {
    const mr_device_table *table;
    const mr_kernel *by_op[MAX_OPS];
    bool lost;          /* written in a forked child, before it has threads */
    uint32_t transfers; /* its stream for copies; 0: it needs none */
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

static mr_code
check_table(const mr_device_table *t)
{
    if (t->abi != MR_DEVICE_ABI || t->size != sizeof *t)
        return mr__fail(MR_E_DEVICE,
                        "the provider %s has table version %u of %u bytes, "
                        "this library needs %u of %zu",
                        t->name, t->abi, t->size, MR_DEVICE_ABI, sizeof *t);
    if (strcmp(t->build, MR_BUILD_HASH) != 0)
        return mr__fail(MR_E_DEVICE,
                        "the provider %s was built for build %s of the "
                        "library, this is %s: build both together",
                        t->name, t->build, MR_BUILD_HASH);
    return MR_OK;
}

static mr_code
add_locked(const mr_device_table *t, mr_memory_pool *pool, uint32_t transfers)
{
    int n = atomic_load_explicit(&n_entries, memory_order_relaxed);
    entry *e = &entries[n];

    if (n == MAX_DEVICES)
        return mr__fail(MR_E_DEVICE,
                        "there are %d devices already, no more are possible",
                        MAX_DEVICES);
    for (int i = 0; i < n; i++)
        if (entries[i].table->device.type == t->device.type &&
            entries[i].table->device.index == t->device.index)
            return mr__fail(MR_E_DEVICE,
                            "the device of the provider %s is that of the "
                            "provider %s already",
                            t->name, entries[i].table->name);
    e->table = t;
    e->transfers = transfers;
    mr__pool_set_space(pool, (uint16_t)n);
    for (const mr_kernel *k = t->kernels; k != NULL && k->run != NULL; k++)
        if (k->op < MAX_OPS)
            e->by_op[k->op] = k;
    atomic_store_explicit(&n_entries, n + 1, memory_order_release);
    return MR_OK;
}

mr_code
mr__device_register(const mr_device_table *t)
{
    mr_code rc = check_table(t);
    mr_memory_pool *pool = rc == MR_OK ? t->pool(t->self) : NULL;

    uint32_t transfers = 0;

    if (pool == NULL)
        return rc != MR_OK ? rc : mr__error_code();
    if (mr__device_has_queues(t) && (transfers = mr__stream_make(t)) == 0)
        return mr__error_code();
    mr__lock_take(&lock);
    rc = add_locked(t, pool, transfers);
    mr__lock_drop(&lock);
    if (rc != MR_OK)
        mr_stream_free((mr_stream){transfers});
    return rc;
}

static entry *
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

uint16_t
mr__device_space(const mr_device_table *t)
{
    const entry *e = entry_of(t);

    return e == NULL ? 0 : (uint16_t)(e - entries);
}

const mr_device_table *
mr__device_of_space(uint16_t space)
{
    return entries[space].table;
}

const mr_device_table *
mr__device_at(int i)
{
    return i < atomic_load_explicit(&n_entries, memory_order_acquire)
               ? entries[i].table
               : NULL;
}

bool
mr__device_is_lost(const mr_device_table *t)
{
    const entry *e = entry_of(t);

    return e != NULL && e->lost;
}

uint32_t
mr__device_transfers(const mr_device_table *t)
{
    return entry_of(t)->transfers;
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

/* The CPU first: it has entry 0.  Providers only when they may be wanted. */
static const mr_device_table *
search_loaded(mr_device d)
{
    pthread_once(&cpu_once, register_cpu);
    if (d.type != MR_CPU)
        mr__providers_load();
    return search(d);
}

const mr_device_table *
mr__device_host(void)
{
    pthread_once(&cpu_once, register_cpu);
    return entries[0].table;
}

const mr_device_table *
mr__device_find(mr_device d)
{
    const mr_device_table *t = search_loaded(d);

    if (cpu_code != MR_OK)
        return mr__cpu_tier() == NULL
                   ? NULL
                   : mr__fail_null(cpu_code, "the CPU device could not start");
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

    search_loaded((mr_device){type, 0});
    n = atomic_load_explicit(&n_entries, memory_order_acquire);
    for (int i = 0; i < n; i++)
        k += entries[i].table->device.type == type;
    return k;
}

bool
mr_device_available(mr_device d)
{
    return search_loaded(d) != NULL;
}

int
mr_device_count(mr_device_type t)
{
    return mr__device_count_of(t);
}

/* Queues and contexts stay with the parent. */
void
mr__devices_fork_child(void)
{
    int n = atomic_load_explicit(&n_entries, memory_order_relaxed);

    mr__lock_fork_child(&lock);
    for (int i = 0; i < n; i++)
        entries[i].lost = mr__device_has_queues(entries[i].table);
}
