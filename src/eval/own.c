/* SPDX-License-Identifier: Apache-2.0
 *
 * own.c -- default devices and streams: the process's device, a thread's own,
 * and for each device the stream that a thread means by "the default one".
 *
 * A thread has a light stream of its own on each device that it uses, made at
 * the first use and ended with the thread; it may set another in its place.
 * All lists here are the thread's, so nothing is locked.
 * Called by: users, the planner.
 */
#include <stddef.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/tls.h"
#include "eval/registry.h"
#include "eval/stream.h"
#include "marram/eval.h"

typedef struct own_stream {
    struct own_stream *next;
    const mr_device_table *device;
    uint32_t id;  /* the thread's own, 0: not made yet */
    uint32_t set; /* what it set in its place, 0: nothing; may be gone */
} own_stream;

/* The thread's devices; the one that was used last is in front. */
static _Thread_local own_stream *own __attribute__((tls_model("initial-exec")));
/* This thread's default device over the process's: packed, NO_DEVICE: none. */
static _Thread_local int32_t scoped __attribute__((tls_model("initial-exec")));

enum { NO_DEVICE = 0, INDEX_BITS = 16 };

/* relaxed: a plain setting */
static _Atomic int32_t process_device = 1 | (MR_CPU << INDEX_BITS << 1);

/* Odd, so that it is not NO_DEVICE. */
static int32_t
pack(mr_device d)
{
    return (int32_t)d.type << INDEX_BITS << 1 | d.index << 1 | 1;
}

static mr_device
unpack(int32_t p)
{
    return (mr_device){(mr_device_type)(p >> INDEX_BITS >> 1),
                       p >> 1 & ((1 << INDEX_BITS) - 1)};
}

/* ---- devices ------------------------------------------------------------ */

mr_device
mr_default_device(void)
{
    int32_t p = scoped;

    if (p == NO_DEVICE)
        p = atomic_load_explicit(&process_device, memory_order_relaxed);
    return unpack(p);
}

mr_code
mr_set_default_device(mr_device d)
{
    if (mr__device_find(d) == NULL)
        return mr__error_code();
    atomic_store_explicit(&process_device, pack(d), memory_order_relaxed);
    return MR_OK;
}

mr_code
mr_device_scope(const mr_device *d, mr_device *old)
{
    if (d != NULL && mr__device_find(*d) == NULL)
        return mr__error_code();
    if (old != NULL)
        *old = scoped == NO_DEVICE ? (mr_device){MR_CPU, -1} : unpack(scoped);
    scoped = d == NULL ? NO_DEVICE : pack(*d);
    return MR_OK;
}

/* ---- streams ------------------------------------------------------------ */

static void
end_all(void *unused)
{
    (void)unused;
    while (own != NULL) {
        own_stream *o = own;

        own = o->next;
        mr__stream_end(o->id);
        mr__dealloc(o);
    }
}

/* The thread's entry of a device, in front of the list; NULL: no memory. */
static own_stream *
entry_of(const mr_device_table *t)
{
    own_stream **at = &own, *o;

    while (*at != NULL && (*at)->device != t)
        at = &(*at)->next;
    o = *at;
    if (o != NULL) {
        *at = o->next;
        o->next = own;
        own = o;
        return o;
    }
    if (own == NULL && !mr__at_thread_exit(end_all, NULL))
        return NULL;
    o = mr__alloc(sizeof *o);
    if (o == NULL)
        return NULL;
    *o = (own_stream){own, t, 0, 0};
    own = o;
    return o;
}

static bool
is_of(const own_stream *o, mr_device d)
{
    return o != NULL && o->device->device.type == d.type &&
           o->device->device.index == d.index;
}

/* The same of the default device. */
static own_stream *
entry_now(void)
{
    mr_device d = mr_default_device();
    const mr_device_table *t;

    if (__builtin_expect(is_of(own, d), 1))
        return own;
    t = mr__device_find(d);
    return t == NULL ? NULL : entry_of(t);
}

static uint32_t
own_id(own_stream *o)
{
    if (o == NULL)
        return 0;
    if (o->id == 0)
        o->id = mr__stream_make(o->device);
    return o->id;
}

static uint32_t
default_id(own_stream *o)
{
    return o != NULL && o->set != 0 && mr__stream_is_open(o->set) ? o->set
                                                                  : own_id(o);
}

uint32_t
mr__stream_own(void)
{
    return own_id(entry_now());
}

uint32_t
mr__stream_default(void)
{
    return default_id(entry_now());
}

uint32_t
mr__stream_wish(uint32_t id)
{
    mr_device d;
    const own_stream *o = own;

    if (id != 0)
        return id;
    d = mr_default_device();
    while (o != NULL && !is_of(o, d))
        o = o->next;
    return o == NULL ? 0 : o->set;
}

bool
mr__stream_is_own(uint32_t id)
{
    for (const own_stream *o = own; o != NULL; o = o->next)
        if (o->id == id)
            return true;
    return false;
}

mr_stream
mr_stream_of(mr_device device)
{
    const mr_device_table *t = mr__device_find(device);

    return (mr_stream){t == NULL ? 0 : default_id(entry_of(t))};
}

mr_stream
mr_stream_default(void)
{
    return (mr_stream){mr__stream_default()};
}

mr_code
mr_stream_set_default(mr_stream s)
{
    own_stream *o;

    if (s.id == 0) {
        for (o = own; o != NULL; o = o->next)
            o->set = 0;
        return MR_OK;
    }
    if (!mr__stream_is_open(s.id))
        return mr__fail(MR_E_VALUE, "stream %u is gone: make a new one",
                        (unsigned)s.id);
    o = entry_of(mr__stream_device(s.id));
    if (o == NULL)
        return mr__error_code();
    o->set = s.id;
    return MR_OK;
}
