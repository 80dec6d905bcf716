/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer.c -- where valid copies of a buffer are, and bringing it over.
 *
 * A buffer has a home, the address space that it was made in, and may have
 * copies elsewhere.  Arrays do not change, so a copy that was made stays valid
 * as long as its buffer: nothing is ever written back or marked stale.  What
 * does write into a buffer keeps clear of it: memory with copies, or with
 * readers on other streams, is neither donated nor used again inside a window;
 * memory that the user may write (exported) is authoritative on the host, has
 * no copies on devices, and each plan brings it over anew.
 *
 * A copy is a *pending node* with memory of its own, filled by a task on the
 * transfer stream of the device.  So whoever reads it waits, fails and plans
 * again by the rules of all nodes.  Copies that a plan makes (its *arrivals*)
 * are hung on their buffers when the plan is submitted, never before.  Between
 * devices that are no peers the host's copy stands in between, and the other
 * device's copy hangs on that one's buffer.
 *
 * A copy on a device is memory that can be had back: when an allocation fails,
 * those that no task uses go, the one that was used longest ago first.  They
 * stand in a list for that.  A buffer may die, with its copies, on any thread
 * and under no lock, so the list has a lock of its own; an evicted copy stays
 * on its buffer as a record without a node until somebody meets it.
 *
 * Called by: reserve.c, submit.c, eval.c, under the plan lock.
 */
#include "eval/transfer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "eval/registry.h"
#include "eval/stream.h"

/* A copy that hangs on its buffer. */
typedef struct mr_copy {
    struct mr_copy *next;
    /* a plain reference; NULL: evicted.  Changed under both locks */
    mr_array *node;
    uint16_t space;
    bool listed; /* guarded by lru.lock, like the next two */
    struct mr_copy *older, *newer;
    uint64_t used; /* the last plan that did; guarded by the plan lock */
} mr_copy;

/* Copies on devices, in the order of their last use. */
static struct {
    mr_lock lock;
    mr_copy *oldest, *newest;
} lru = {.lock = MR_LOCK_INIT(MR_RANK_COPIES, "copies")};

struct mr_arrival {
    struct mr_arrival *next;
    mr_buffer *home;
    mr_copy *copy;  /* to be hung on it; NULL: for this plan alone */
    mr_array *node; /* a plain reference, unless copy has it */
    mr_task *task;
    const char *from; /* the bytes that were copied: where they lie at home */
    size_t bytes;
    mr_buffer *to;
    uint16_t space;
};

static bool
is_host(uint16_t space)
{
    return space == 0;
}

/* ---- copies that hang on their buffer ---------------------------------------
 */

static void
unlist_locked(mr_copy *c)
{
    if (!c->listed)
        return;
    if (c->older != NULL)
        c->older->newer = c->newer;
    else
        lru.oldest = c->newer;
    if (c->newer != NULL)
        c->newer->older = c->older;
    else
        lru.newest = c->older;
    c->listed = false;
}

/* It is the one that was used last. */
static void
copy_use(mr_copy *c, uint64_t plan)
{
    c->used = plan;
    if (is_host(c->space)) /* pointers into it were lent: it stays */
        return;
    mr__lock_take(&lru.lock);
    unlist_locked(c);
    c->older = lru.newest;
    c->newer = NULL;
    if (lru.newest != NULL)
        lru.newest->newer = c;
    else
        lru.oldest = c;
    lru.newest = c;
    c->listed = true;
    mr__lock_drop(&lru.lock);
}

/* Under no lock when its buffer died, else under the plan lock. */
static void
copy_free(mr_copy *c)
{
    mr_array *node;

    mr__lock_take(&lru.lock);
    unlist_locked(c);
    node = c->node;
    mr__lock_drop(&lru.lock);
    mr__release(node);
    mr__dealloc(c);
}

/* Nobody but the copy's record has it, and its bytes are elsewhere as well. */
static bool
is_idle(const mr_array *x)
{
    return mr__state(x) == MR_DONE && mr__ref_total(x) == 1 &&
           /* acquire: pairs with the releases of those who have read */
           atomic_load_explicit(&x->buffer->refs, memory_order_acquire) == 1;
}

bool
mr__copies_evict(const mr_plan *p, uint16_t space)
{
    mr_array *node = NULL;

    mr__lock_take(&lru.lock);
    for (mr_copy *c = lru.oldest; c != NULL && node == NULL; c = c->newer)
        if ((is_host(space) || c->space == space) && c->used != p->number &&
            is_idle(c->node)) {
            unlist_locked(c);
            node = c->node;
            c->node = NULL;
        }
    mr__lock_drop(&lru.lock);
    mr__release(node);
    return node != NULL;
}

static void
copies_free(mr_copy *c)
{
    while (c != NULL) {
        mr_copy *next = c->next;

        copy_free(c);
        c = next;
    }
}

/* Before main, so before any other thread: a plain store. */
__attribute__((constructor)) static void
set_copies_hook(void)
{
    mr__buffer_copies_hook = copies_free;
}

/* One that is there or on its way; those that did not make it are dropped. */
static mr_copy *
copy_in(mr_buffer *home, uint16_t space)
{
    for (mr_copy **at = &home->copies; *at != NULL;) {
        mr_copy *c = *at;
        mr_state s = c->node == NULL ? MR_NEW : mr__state(c->node);

        if (c->space == space && (s == MR_DONE || s == MR_SUBMITTED))
            return c;
        if (c->space != space) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        copy_free(c);
    }
    return NULL;
}

void
mr__copies_drop_on_devices(mr_buffer *home)
{
    for (mr_copy **at = &home->copies; *at != NULL;) {
        mr_copy *c = *at;

        if (c->space == 0) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        copy_free(c);
    }
}

mr_array *
mr__copy_on_host(mr_buffer *home)
{
    const mr_copy *c = copy_in(home, 0);

    return c == NULL ? NULL : c->node;
}

/* ---- what is to be copied ---------------------------------------------------
 */

/* A span of bytes, and what must be done before they are there. */
typedef struct span {
    mr_buffer *buffer;
    char *from;
    size_t bytes;
    mr_array *source; /* NULL: nothing */
} span;

static mr_buffer *
home_of(const mr_place *w)
{
    return w->buffer != NULL ? w->buffer : w->owner->buffer;
}

/* The whole buffer; of memory that the user wrapped with strides that leave it,
 * just what x looks at (then false: such a copy is of no use to others). */
static bool
span_of(const mr_array *x, const mr_place *w, span *s)
{
    mr_buffer *home = home_of(w);
    int64_t item = mr__dtype_size((mr_dtype)x->dtype);
    char *low = w->data, *high = w->data + item;

    *s = (span){home, home->data, home->bytes, w->source};
    for (int i = 0; i < x->ndim && x->size > 0; i++) {
        int64_t reach = (x->dim[i] - 1) * w->stride[i] * item;

        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    if (x->size == 0 || (low >= s->from && high <= s->from + s->bytes))
        return true;
    s->from = low;
    s->bytes = (size_t)(high - low);
    return false;
}

/* ---- arrivals ---------------------------------------------------------------
 */

static mr_arrival *
arrival_find(const mr_plan *p, const span *s, uint16_t space)
{
    for (mr_arrival *a = p->arrivals; a != NULL; a = a->next)
        if (a->home == s->buffer && a->space == space && a->from == s->from &&
            a->bytes == s->bytes)
            return a;
    return NULL;
}

static mr_task *
transfer_task(mr_plan *p, const mr_device_table *d, mr_array *behalf)
{
    mr_arena *a = &p->window->arena;
    mr_task *t = mr__arena_zero(a, sizeof *t);
    uint32_t stream = mr__device_transfers(d);

    if (t == NULL)
        return NULL;
    t->in = mr__arena_zero(a, 2 * sizeof *t->in);
    t->out = mr__arena_zero(a, 2 * sizeof *t->out);
    t->link = mr__arena_zero(a, 2 * sizeof *t->link);
    t->flight = mr__arena_zero(a, sizeof *t->flight);
    if (t->in == NULL || t->out == NULL || t->link == NULL || t->flight == NULL)
        return NULL;
    t->flight->task = t;
    t->window = p->window;
    t->kind = MR_TASK_TRANSFER;
    t->stream = stream;
    t->device = d;
    t->node = behalf;
    t->n_in = t->n_out = 1;
    return mr__plan_note_stream(p, stream) ? t : NULL;
}

static void
operand_bytes(mr_task_operand *o, char *data, mr_buffer *b, mr_array *source,
              const mr_array *shape)
{
    o->data = data;
    o->buffer = b;
    o->keep = source;
    o->is_source = source != NULL;
    o->dtype = MR_UINT8;
    o->ndim = 1;
    o->size = shape->size;
    o->dim = shape->dim;
    o->stride = mr__strides(shape);
}

/* The bytes of s in `space`: a task, its node, its memory. */
static bool
arrival_make(mr_plan *p, mr_array *behalf, const span *s, mr_arrival *a)
{
    const mr_device_table *to = mr__device_of_space(a->space);
    const mr_device_table *d =
        is_host(a->space) ? mr__device_of_space(s->buffer->space) : to;
    mr_task *t = transfer_task(p, d, behalf);

    if (t == NULL)
        return false;
    a->to = mr__plan_buffer(p, to, s->bytes);
    if (a->to == NULL)
        return false;
    a->node = mr__node_pending(s->bytes, t->stream, behalf->site);
    if (a->node == NULL)
        return false;
    *mr__strides(a->node) = 1;
    a->task = t;
    a->next = p->arrivals;
    p->arrivals = a;
    operand_bytes(&t->in[0], s->from, s->buffer, s->source, a->node);
    operand_bytes(&t->out[0], a->to->data, a->to, NULL, a->node);
    t->cost = 1000.0 + 0.1 * (double)s->bytes;
    if (!mr__plan_completes(p, t, a->node))
        return false;
    mr__plan_append(p, t);
    return true;
}

static mr_copy *
copy_record(mr_arrival *a)
{
    mr_copy *c = mr__alloc(sizeof *c);

    if (c != NULL)
        *c = (mr_copy){.node = a->node, .space = a->space};
    return c;
}

static void
place_at(mr_place *w, const char *from, mr_buffer *to, char *data,
         mr_array *node)
{
    w->data = data + (w->data - from);
    w->buffer = to;
    w->owner = NULL;
    w->source = node;
    w->base = NULL;
}

/* Devices that cannot copy to each other, and memory that is authoritative on
 * the host, go through the host. */
static bool
goes_through_host(const mr_buffer *home, uint16_t space)
{
    const mr_device_table *a, *b;

    if (is_host(home->space) || is_host(space))
        return false;
    if (home->exported_writable)
        return true;
    a = mr__device_of_space(home->space);
    b = mr__device_of_space(space);
    return a->peers == NULL || a->peers != b->peers;
}

static bool
bring(mr_plan *p, mr_array *behalf, const span *s, bool whole, uint16_t space,
      mr_place *w)
{
    mr_buffer *home = home_of(w);
    /* host memory that the user writes has no lasting copies */
    bool lasts = whole && (is_host(space) || !home->exported_writable);
    mr_arrival *a = arrival_find(p, s, space);
    mr_copy *copy = a == NULL && lasts ? copy_in(home, space) : NULL;

    if (copy != NULL) {
        mr_array *there = copy->node;

        copy_use(copy, p->number);
        place_at(w, s->from, there->buffer, there->buffer->data,
                 mr__state(there) == MR_DONE ? NULL : there);
        w->task = NULL;
        return true;
    }
    if (a == NULL) {
        a = mr__arena_zero(&p->window->arena, sizeof *a);
        if (a == NULL)
            return false;
        *a = (mr_arrival){
            .home = home, .from = s->from, .bytes = s->bytes, .space = space};
        if (!arrival_make(p, behalf, s, a))
            return false;
        if (lasts && (a->copy = copy_record(a)) == NULL)
            return false;
    }
    place_at(w, s->from, a->to, a->to->data, a->node);
    w->task = a->task;
    return true;
}

/* What failed before it had memory: kernels there read something. */
static bool
bring_nothing(mr_plan *p, const mr_array *x, uint16_t space, mr_place *w)
{
    static const int64_t still[MR_MAX_NDIM];
    size_t size = (size_t)mr__dtype_size((mr_dtype)x->dtype);

    if (!mr__is_contiguous(x->ndim, x->dim, w->stride)) /* a view of it */
        w->stride = still;
    w->buffer =
        mr__plan_buffer(p, mr__device_of_space(space), (size_t)x->size * size);
    if (w->buffer == NULL)
        return false;
    w->data = w->buffer->data;
    return true;
}

bool
mr__place_bring(mr_plan *p, mr_array *behalf, const mr_array *x, uint16_t space,
                mr_place *w)
{
    span s;
    bool whole;

    if (w->buffer == NULL && w->source != NULL)
        return bring_nothing(p, x, space, w);
    whole = span_of(x, w, &s);
    if (w->base != NULL)
        w->base->foreign = true;
    if (goes_through_host(s.buffer, space)) {
        if (!bring(p, behalf, &s, whole, 0, w))
            return false;
        whole = span_of(x, w, &s); /* of the host's copy */
    }
    return bring(p, behalf, &s, whole, space, w);
}

/* ---- publishing -------------------------------------------------------------
 */

void
mr__arrivals_publish(mr_plan *p)
{
    for (mr_arrival *a = p->arrivals; a != NULL; a = a->next) {
        a->node->buffer = mr__buffer_retain(a->to);
        /* release: pairs with the acquire of waiters and walkers */
        atomic_store_explicit(&a->node->state, MR_SUBMITTED,
                              memory_order_release);
        if (a->copy == NULL)
            continue;
        a->copy->next = a->home->copies;
        a->home->copies = a->copy;
        copy_use(a->copy, p->number);
        a->node = NULL;
    }
    mr__arrivals_drop(p);
}

void
mr__arrivals_drop(mr_plan *p)
{
    for (mr_arrival *a = p->arrivals; a != NULL; a = a->next) {
        if (a->node == NULL)
            continue;
        mr__dealloc(a->copy);
        mr__release(a->node);
    }
    p->arrivals = NULL;
}

/* A thread that is gone may have been in the middle of the list: those copies
 * are of devices that are lost. */
void
mr__copies_fork_child(void)
{
    mr__lock_fork_child(&lru.lock);
    for (mr_copy *c = lru.oldest; c != NULL; c = c->newer)
        c->listed = false;
    lru.oldest = lru.newest = NULL;
}
