/* SPDX-License-Identifier: Apache-2.0
 *
 * null.c -- a device without arithmetic: test device 2.
 *
 * Its memory is addresses alone, and whatever is launched is done at once, so
 * that what planning and scheduling cost can be seen, and graphs be planned
 * that no memory would hold.  Everything that is read from it is 0.
 */
#include <string.h>

#include "providers/space.h"

enum { MAX_ROWS = 256 };

static const mr_host *host;
static space memory;
static mr_memory_pool *pool;
static mr_kernel rows[MAX_ROWS];
static char a_queue;

static void *
memory_take(void *ctx, size_t bytes)
{
    return space_take(ctx, bytes);
}

static void
memory_give(void *ctx, void *p, size_t bytes)
{
    (void)bytes;
    space_give(ctx, p);
}

static mr_memory_pool *
memory_pool(void *self)
{
    (void)self;
    return pool;
}

static void *
queue_new(void *self)
{
    (void)self;
    return &a_queue;
}

static void
queue_free(void *self, void *queue)
{
    (void)self;
    (void)queue;
}

static mr_code
launch(void *self, void *queue, const mr_launch *l)
{
    (void)self;
    (void)queue;
    (void)l;
    return MR_OK;
}

static mr_code
copy(void *self, void *queue, mr_copy_way way, void *to, const void *from,
     size_t bytes, const mr_device_table *peer)
{
    (void)self;
    (void)queue;
    (void)from;
    (void)peer;
    if (way == MR_COPY_FROM_DEVICE && bytes > 0)
        memset(to, 0, bytes);
    return MR_OK;
}

static void
record(void *self, void *queue, mr_event *e)
{
    (void)self;
    (void)queue;
    e->done(e, MR_OK);
}

static bool
fuses(mr_k k, mr_dtype operand)
{
    return host->cpu->fuses(k, operand);
}

static mr_device_table table = {.size = sizeof(mr_device_table),
                                .abi = MR_DEVICE_ABI,
                                .build = MR_BUILD_HASH,
                                .name = "null",
                                .device = {MR_TEST_DEVICE, 2},
                                .pool = memory_pool,
                                .kernels = rows,
                                .fuses = fuses,
                                .queue_new = queue_new,
                                .queue_free = queue_free,
                                .launch = launch,
                                .copy = copy,
                                .record = record};

mr_code mr_provider_init(const mr_host *h);

__attribute__((visibility("default"))) mr_code
mr_provider_init(const mr_host *h)
{
    mr_code rc = mr__host_check(h, "null");
    int n = 0, bits = 44;

    if (rc != MR_OK)
        return rc;
    host = h;
    for (const mr_kernel *k = h->cpu->kernels;
         k->run != NULL && n < MAX_ROWS - 1; k++)
        rows[n++] = *k;
    while (!space_open(&memory, h, (size_t)1 << bits) && bits > 32)
        bits--;
    if (memory.base == NULL)
        return h->fail(MR_E_MEMORY, "no addresses for the null device");
    pool = h->pool_new(
        &(mr_pool_source){"null", memory_take, memory_give, &memory});
    if (pool == NULL)
        return MR_E_MEMORY;
    h->pool_set_cache_limit(pool, 0);
    return h->device_register(&table);
}
