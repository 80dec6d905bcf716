/* SPDX-License-Identifier: Apache-2.0
 *
 * far.c -- a device that is the CPU behind a wall: two test devices, 0 and 1.
 *
 * Its memory has addresses that nobody can read: who forgets to bring data over
 * ends with a signal.  The bytes lie elsewhere, and are spoilt when memory is
 * taken and when it is given back.  Queues are run by one thread for each
 * device, in any order between queues, with delays by a seed.  Kernels are the
 * CPU's, with other addresses; some are left out on purpose.  The two devices
 * are peers.
 *
 * MARRAM_FAR_SEED sets the delays.
 */
#include "providers/far.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gen/ids.h"
#include "providers/space.h"

enum { N_DEVICES = 2, MAX_ROWS = 256, SPOILT = 0xDB };
static const size_t reach = (size_t)1 << 31;

typedef enum item_kind {
    ITEM_KERNEL,
    ITEM_BLOCK,
    ITEM_COPY,
    ITEM_EVENT
} item_kind;

typedef struct item {
    struct item *next;
    item_kind kind;
    bool fails; /* FAR_RUN */
    const mr_kernel *kernel;
    mr_kernel_args args;
    mr_kernel_view *view;
    const mr_block_code *code;
    mr_block_launch *block;
    void *workspace;
    void *to;
    const void *from;
    size_t bytes;
    const struct mr_array *origin;
} item;

typedef struct queue {
    struct queue *next;
    item *head, **tail;
    mr_event *first, **last; /* events that stand behind items of `numbers` */
    uint64_t n_put, n_run;
    bool over; /* to be freed when it is empty */
    mr_code rc;
    mr_error_record *why;
} queue;

typedef struct device {
    mr_device_table table;
    space shown;
    char *store;
    mr_memory_pool *pool;
    pthread_mutex_t lock; /* guards what follows, and the queues' lists */
    pthread_cond_t wake;
    queue *queues;
    uint64_t state; /* of the random numbers */
    bool started;
} device;

static const mr_host *host;
static device devices[N_DEVICES];
static mr_kernel rows[MAX_ROWS];

/* ---- what tests drive
 * ------------------------------------------------------------- */

static _Atomic int64_t fault_at[FAR_N_FAULTS], fault_run[FAR_N_FAULTS];
static _Atomic uint64_t delay_seed;
static _Atomic bool held;
static _Atomic int64_t n_queues;
static _Atomic uint64_t n_kernels, n_blocks, n_to, n_from, n_peer, n_bytes,
    n_events;

static bool
is_to_fail(far_fault f)
{
    int64_t n;

    if (atomic_load(&fault_run[f]) == 0)
        return false;
    n = atomic_fetch_sub(&fault_at[f], 1);
    if (n > 1)
        return false;
    atomic_fetch_sub(&fault_run[f], 1);
    return true;
}

static void
control_fault(far_fault what, int64_t n, int64_t run)
{
    atomic_store(&fault_at[what], n);
    atomic_store(&fault_run[what], n > 0 ? run : 0);
}

static void
wake_all(void)
{
    for (int i = 0; i < N_DEVICES; i++) {
        pthread_mutex_lock(&devices[i].lock);
        pthread_cond_broadcast(&devices[i].wake);
        pthread_mutex_unlock(&devices[i].lock);
    }
}

static void
control_delays(uint64_t seed)
{
    atomic_store(&delay_seed, seed);
}

static void
control_hold(bool on)
{
    atomic_store(&held, on);
    wake_all();
}

static far_figures
control_figures(void)
{
    far_figures f = {.kernels = atomic_exchange(&n_kernels, 0),
                     .blocks = atomic_exchange(&n_blocks, 0),
                     .to_device = atomic_exchange(&n_to, 0),
                     .from_device = atomic_exchange(&n_from, 0),
                     .peer = atomic_exchange(&n_peer, 0),
                     .bytes_copied = atomic_exchange(&n_bytes, 0),
                     .events = atomic_exchange(&n_events, 0),
                     .queues = atomic_load(&n_queues)};

    f.launches = f.kernels + f.blocks;
    return f;
}

extern const far_control far_control_table;
__attribute__((visibility("default"))) const far_control far_control_table = {
    control_fault, control_delays, control_hold, control_figures};

/* ---- memory
 * ----------------------------------------------------------------------- */

static void *
memory_take(void *ctx, size_t bytes)
{
    device *d = ctx;
    void *p = is_to_fail(FAR_ALLOC) ? NULL : space_take(&d->shown, bytes);

    if (p != NULL)
        memset(d->store + ((char *)p - d->shown.base), SPOILT, bytes);
    return p;
}

static void
memory_give(void *ctx, void *p, size_t bytes)
{
    device *d = ctx;

    memset(d->store + ((char *)p - d->shown.base), SPOILT, bytes);
    space_give(&d->shown, p);
}

static mr_memory_pool *
memory_pool(void *self)
{
    return ((device *)self)->pool;
}

/* Where the bytes really are. */
static void *
real(const device *d, const void *p)
{
    size_t at = (size_t)((const char *)p - d->shown.base);

    if (p == NULL)
        return NULL;
    if (at >= reach) {
        fprintf(stderr, "%s: %p is no memory of this device\n", d->table.name,
                p);
        abort();
    }
    return d->store + at;
}

/* ---- running
 * ---------------------------------------------------------------------- */

static mr_code
item_run(const device *d, item *i)
{
    if (i->fails)
        return host->fail(MR_E_DEVICE, "the device %s failed, as asked",
                          d->table.name);
    switch (i->kind) {
    case ITEM_KERNEL:
        for (int k = 0; k < i->args.n_in + i->args.n_out; k++)
            i->view[k].data = real(d, i->view[k].data);
        i->args.in = i->view;
        i->args.out = i->view + i->args.n_in;
        i->args.workspace = real(d, i->args.workspace);
        return i->kernel->run(&i->args);
    case ITEM_BLOCK:
        for (int k = 0; k < i->code->n_in; k++)
            i->block->in[k].data = real(d, i->block->in[k].data);
        for (int k = 0; k < i->code->n_out; k++)
            i->block->out[k].data = real(d, i->block->out[k].data);
        return host->cpu->run_block(i->code, i->block, real(d, i->workspace));
    case ITEM_COPY:
        if (i->bytes > 0)
            memcpy(i->to, i->from, i->bytes);
        return MR_OK;
    case ITEM_EVENT:
    default:
        return MR_OK;
    }
}

static void
item_free(item *i)
{
    host->dealloc(i->view);
    host->dealloc(i->block);
    host->dealloc(i);
}

static uint64_t
random_next(device *d)
{
    d->state ^= d->state << 13;
    d->state ^= d->state >> 7;
    d->state ^= d->state << 17;
    return d->state;
}

static bool
has_work(const queue *q)
{
    return q->head != NULL || q->first != NULL || q->over;
}

/* Any queue with work, under the lock. */
static queue *
queue_pick(device *d)
{
    uint64_t n = 0, k;

    if (atomic_load(&held))
        return NULL;
    for (queue *q = d->queues; q != NULL; q = q->next)
        n += has_work(q);
    if (n == 0)
        return NULL;
    k = atomic_load(&delay_seed) != 0 ? random_next(d) % n : 0;
    for (queue *q = d->queues; q != NULL; q = q->next)
        if (has_work(q) && k-- == 0)
            return q;
    return NULL;
}

static void
delay(device *d)
{
    uint64_t r;

    if (atomic_load(&delay_seed) == 0)
        return;
    pthread_mutex_lock(&d->lock);
    r = random_next(d);
    pthread_mutex_unlock(&d->lock);
    if (r % 4 == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(r / 4 % 100000)}, NULL);
}

/* The event's place in the queue: the number of items put before it. */
static uint64_t
event_number(const mr_event *e)
{
    return (uint64_t)(uintptr_t)e->provider[1];
}

static void
queue_end(device *d, queue *q)
{
    queue **at = &d->queues;

    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    pthread_mutex_unlock(&d->lock);
    host->error_release(q->why);
    host->dealloc(q);
    atomic_fetch_sub(&n_queues, 1);
    pthread_mutex_lock(&d->lock);
}

/* Under the lock, let go meanwhile. */
static void
event_call(device *d, queue *q)
{
    mr_event *e = q->first;
    mr_error_record *why = q->why;
    mr_code rc = q->rc;

    q->first = e->provider[0];
    if (q->first == NULL)
        q->last = &q->first;
    q->why = NULL;
    q->rc = MR_OK;
    pthread_mutex_unlock(&d->lock);
    if (rc != MR_OK)
        host->error_raise(why);
    host->error_release(why);
    atomic_fetch_add(&n_events, 1);
    e->done(e, rc);
    pthread_mutex_lock(&d->lock);
}

static void
item_call(device *d, queue *q)
{
    item *i = q->head;
    mr_code rc;

    q->head = i->next;
    if (q->head == NULL)
        q->tail = &q->head;
    pthread_mutex_unlock(&d->lock);
    delay(d);
    rc = item_run(d, i);
    if (rc != MR_OK) {
        mr_error_record *why;

        host->error_name(i->origin);
        why = host->error_capture();
        if (q->rc == MR_OK) {
            q->rc = rc;
            q->why = why;
        } else {
            host->error_release(why);
        }
    }
    item_free(i);
    pthread_mutex_lock(&d->lock);
    q->n_run++;
}

static void
step(device *d, queue *q)
{
    if (q->first != NULL && event_number(q->first) <= q->n_run)
        event_call(d, q);
    else if (q->head != NULL)
        item_call(d, q);
    else
        queue_end(d, q);
}

static void *
thread_main(void *arg)
{
    device *d = arg;

    pthread_mutex_lock(&d->lock);
    for (;;) {
        queue *q = queue_pick(d);

        if (q == NULL)
            pthread_cond_wait(&d->wake, &d->lock);
        else
            step(d, q);
    }
    return NULL;
}

/* ---- the table's functions
 * --------------------------------------------------------- */

/* The thread starts with the first queue and ends with the process. */
static mr_code
thread_start(device *d)
{
    sigset_t all, old;
    pthread_t thread;
    int rc = 0;

    pthread_mutex_lock(&d->lock);
    if (!d->started) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        rc = pthread_create(&thread, NULL, thread_main, d);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (rc == 0)
            pthread_detach(thread);
        d->started = rc == 0;
    }
    pthread_mutex_unlock(&d->lock);
    return rc == 0 ? MR_OK : host->fail(MR_E_DEVICE, "no thread: error %d", rc);
}

static void *
queue_new(void *self)
{
    device *d = self;
    queue *q = host->alloc(sizeof *q);

    if (q == NULL || thread_start(d) != MR_OK) {
        host->dealloc(q);
        return NULL;
    }
    *q = (queue){0};
    q->tail = &q->head;
    q->last = &q->first;
    pthread_mutex_lock(&d->lock);
    q->next = d->queues;
    d->queues = q;
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_add(&n_queues, 1);
    return q;
}

static void
queue_free(void *self, void *queue_)
{
    device *d = self;
    queue *q = queue_;

    pthread_mutex_lock(&d->lock);
    q->over = true;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

static void
put(device *d, queue *q, item *i)
{
    i->next = NULL;
    i->fails = is_to_fail(FAR_RUN);
    pthread_mutex_lock(&d->lock);
    *q->tail = i;
    q->tail = &i->next;
    q->n_put++;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

static item *
item_new(item_kind kind)
{
    item *i = host->alloc(sizeof *i);

    if (i != NULL)
        *i = (item){.kind = kind};
    return i;
}

static mr_code
launch_kernel(device *d, queue *q, const mr_launch *l)
{
    size_t n = (size_t)(l->args->n_in + l->args->n_out);
    item *i = item_new(ITEM_KERNEL);

    if (i == NULL)
        return MR_E_MEMORY;
    i->view = host->alloc((n + 1) * sizeof *i->view);
    if (i->view == NULL) {
        item_free(i);
        return MR_E_MEMORY;
    }
    memcpy(i->view, l->args->in, (size_t)l->args->n_in * sizeof *i->view);
    memcpy(i->view + l->args->n_in, l->args->out,
           (size_t)l->args->n_out * sizeof *i->view);
    i->args = *l->args;
    i->kernel = l->kernel;
    i->origin = l->origin;
    atomic_fetch_add(&n_kernels, 1);
    put(d, q, i);
    return MR_OK;
}

static mr_code
launch_block(device *d, queue *q, const mr_launch *l)
{
    item *i = item_new(ITEM_BLOCK);

    if (i == NULL)
        return MR_E_MEMORY;
    i->block = host->alloc(sizeof *i->block);
    if (i->block == NULL) {
        item_free(i);
        return MR_E_MEMORY;
    }
    *i->block = *l->block;
    i->code = l->code;
    i->workspace = l->workspace;
    i->origin = l->origin;
    atomic_fetch_add(&n_blocks, 1);
    put(d, q, i);
    return MR_OK;
}

static mr_code
launch(void *self, void *queue_, const mr_launch *l)
{
    device *d = self;

    if (is_to_fail(FAR_LAUNCH))
        return host->fail(MR_E_DEVICE, "the device %s refused a launch",
                          d->table.name);
    return l->kernel != NULL ? launch_kernel(d, queue_, l)
                             : launch_block(d, queue_, l);
}

static mr_code
copy(void *self, void *queue_, mr_copy_way way, void *to, const void *from,
     size_t bytes, const mr_device_table *peer)
{
    device *d = self;
    item *i;

    if (is_to_fail(FAR_COPY))
        return host->fail(MR_E_DEVICE, "the device %s refused a copy",
                          d->table.name);
    i = item_new(ITEM_COPY);
    if (i == NULL)
        return MR_E_MEMORY;
    i->to = way == MR_COPY_FROM_DEVICE ? to : real(d, to);
    i->from = way == MR_COPY_TO_DEVICE ? from
              : way == MR_COPY_PEER    ? real(peer->self, from)
                                       : real(d, from);
    i->bytes = bytes;
    atomic_fetch_add(way == MR_COPY_TO_DEVICE     ? &n_to
                     : way == MR_COPY_FROM_DEVICE ? &n_from
                                                  : &n_peer,
                     1);
    atomic_fetch_add(&n_bytes, bytes);
    put(d, queue_, i);
    return MR_OK;
}

static void
record(void *self, void *queue_, mr_event *e)
{
    device *d = self;
    queue *q = queue_;

    pthread_mutex_lock(&d->lock);
    e->provider[0] = NULL;
    e->provider[1] = (void *)(uintptr_t)q->n_put;
    *q->last = e;
    q->last = (mr_event **)(void *)&e->provider[0];
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

/* The host must do these: the error function, and every operator of two. */
static bool
fuses(mr_k k, mr_dtype operand)
{
    return k != MR_K_ERF && host->cpu->fuses(k, operand);
}

static void
rows_fill(void)
{
    int n = 0;

    for (const mr_kernel *k = host->cpu->kernels;
         k->run != NULL && n < MAX_ROWS - 1; k++)
        if (k->op != MR_OP_SORT && k->op != MR_OP_SCAN)
            rows[n++] = *k;
}

/* ---- the provider
 * ------------------------------------------------------------------ */

static mr_code
device_open(int index)
{
    static const char *const names[N_DEVICES] = {"far 0", "far 1"};
    device *d = &devices[index];

    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    d->state = 0x9E3779B97F4A7C15u * (uint64_t)(index + 1);
    if (!space_open(&d->shown, host, reach))
        return host->fail(MR_E_MEMORY, "no addresses for %s", names[index]);
    d->store = mmap(NULL, reach, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (d->store == MAP_FAILED)
        return host->fail(MR_E_MEMORY, "no memory for %s", names[index]);
    d->pool = host->pool_new(
        &(mr_pool_source){names[index], memory_take, memory_give, d});
    if (d->pool == NULL)
        return MR_E_MEMORY;
    host->pool_set_cache_limit(d->pool, 0); /* back at once, and spoilt */
    d->table = (mr_device_table){.size = sizeof(mr_device_table),
                                 .abi = MR_DEVICE_ABI,
                                 .build = MR_BUILD_HASH,
                                 .name = names[index],
                                 .device = {MR_TEST_DEVICE, index},
                                 .self = d,
                                 .pool = memory_pool,
                                 .kernels = rows,
                                 .fuses = fuses,
                                 .block_workspace = host->cpu->block_workspace,
                                 .queue_new = queue_new,
                                 .queue_free = queue_free,
                                 .launch = launch,
                                 .copy = copy,
                                 .record = record,
                                 .peers = devices};
    return host->device_register(&d->table);
}

mr_code mr_provider_init(const mr_host *h);

__attribute__((visibility("default"))) mr_code
mr_provider_init(const mr_host *h)
{
    const char *seed = getenv("MARRAM_FAR_SEED");
    mr_code rc = mr__host_check(h, "far");

    if (rc != MR_OK)
        return rc;
    host = h;
    if (seed != NULL)
        control_delays(strtoull(seed, NULL, 10));
    rows_fill();
    for (int i = 0; i < N_DEVICES && rc == MR_OK; i++)
        rc = device_open(i);
    return rc;
}
