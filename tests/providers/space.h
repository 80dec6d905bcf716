/* SPDX-License-Identifier: Apache-2.0
 *
 * space.h -- addresses that nobody can read or write: a reserved range, and
 * which parts of it are given out.
 */
#ifndef MRT_PROVIDERS_SPACE_H
#define MRT_PROVIDERS_SPACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#include "eval/device.h"

typedef struct range {
    struct range *next; /* in the order of addresses */
    size_t at, bytes;
} range;

typedef struct space {
    pthread_mutex_t lock;
    const mr_host *host;
    char *base;
    size_t bytes;
    range *used;
} space;

static bool
space_open(space *s, const mr_host *host, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    pthread_mutex_init(&s->lock, NULL);
    s->host = host;
    s->base = p == MAP_FAILED ? NULL : p;
    s->bytes = bytes;
    s->used = NULL;
    return s->base != NULL;
}

/* First fit; a page is left between two blocks. */
static void *
space_take(space *s, size_t bytes)
{
    size_t need = (bytes + 8191) / 4096 * 4096, at = 0;
    range *r = s->host->alloc(sizeof *r), **link;

    if (r == NULL)
        return NULL;
    pthread_mutex_lock(&s->lock);
    for (link = &s->used; *link != NULL; link = &(*link)->next) {
        if ((*link)->at - at >= need)
            break;
        at = (*link)->at + (*link)->bytes;
    }
    if (at + need > s->bytes) {
        pthread_mutex_unlock(&s->lock);
        s->host->dealloc(r);
        return NULL;
    }
    *r = (range){*link, at, need};
    *link = r;
    pthread_mutex_unlock(&s->lock);
    return s->base + at;
}

static void
space_give(space *s, void *p)
{
    size_t at = (size_t)((char *)p - s->base);
    range **link, *r;

    pthread_mutex_lock(&s->lock);
    for (link = &s->used; (*link)->at != at; link = &(*link)->next)
        ;
    r = *link;
    *link = r->next;
    pthread_mutex_unlock(&s->lock);
    s->host->dealloc(r);
}

#endif
