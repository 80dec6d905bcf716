/* SPDX-License-Identifier: Apache-2.0
 *
 * map.c -- a hash table from pointers to pointers, and hashes of bytes.
 *
 * Linear probing from the top bits of the address times the golden ratio:
 * one multiplication, and neighbours in memory land far apart.  Nothing is
 * ever deleted, so a probe ends at the first free slot; at most 7 slots of 10
 * are taken.
 * Called by: walks, plans, the compile cache.  Calls: alloc.h.
 */
#include "base/map.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"

enum { FIRST_CAP = 16 };

static const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);

/* cap is a power of two, at least 2. */
static size_t
home_slot(const void *key, size_t cap)
{
    uint64_t h = (uint64_t)(uintptr_t)key * golden;

    return (size_t)(h >> (__builtin_clzll((unsigned long long)cap) + 1));
}

/* The slot of key, or the free one where it belongs. */
static struct mr_map_slot *
find_slot(struct mr_map_slot *slot, size_t cap, const void *key)
{
    size_t i = home_slot(key, cap);

    while (slot[i].key != NULL && slot[i].key != key)
        i = (i + 1) & (cap - 1);
    return slot + i;
}

static bool
grow(mr_map *m)
{
    size_t cap = m->cap > 0 ? m->cap * 2 : FIRST_CAP;
    struct mr_map_slot *slot = mr__alloc_zero(cap * sizeof *slot);

    if (slot == NULL)
        return false;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slot[i].key != NULL)
            *find_slot(slot, cap, m->slot[i].key) = m->slot[i];
    mr__dealloc(m->slot);
    m->slot = slot;
    m->cap = cap;
    return true;
}

void *
mr__map_get(const mr_map *m, const void *key)
{
    if (m->cap == 0 || key == NULL)
        return NULL;
    return find_slot(m->slot, m->cap, key)->value;
}

void **
mr__map_at(mr_map *m, const void *key)
{
    struct mr_map_slot *s;

    assert(key != NULL);
    if (m->cap > 0) {
        s = find_slot(m->slot, m->cap, key);
        if (s->key != NULL)
            return &s->value;
    }
    if ((m->n + 1) * 10 > m->cap * 7 && !grow(m))
        return NULL;
    s = find_slot(m->slot, m->cap, key);
    s->key = key;
    s->value = NULL;
    m->n++;
    return &s->value;
}

bool
mr__map_put(mr_map *m, const void *key, void *value)
{
    void **at = mr__map_at(m, key);

    if (at == NULL)
        return false;
    *at = value;
    return true;
}

void
mr__map_free(mr_map *m)
{
    mr__dealloc(m->slot);
    *m = (mr_map){0};
}

/* Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * OOPSLA 2014: the generator's finaliser, with the increment in front so that
 * 0 does not map to 0. */
uint64_t
mr__hash_u64(uint64_t x)
{
    x += golden;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Both halves of a 128-bit product, folded: each bit of the result depends on
 * every bit of both factors. */
static uint64_t
fold_product(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide p = (wide)a * b;

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t
load_word(const unsigned char *p, size_t n)
{
    uint64_t w = 0;

    memcpy(&w, p, n);
    return w;
}

uint64_t
mr__hash_bytes(uint64_t seed, const void *p, size_t n)
{
    const unsigned char *at = p;
    uint64_t h = mr__hash_u64(seed ^ (uint64_t)n);

    for (; n >= 16; n -= 16, at += 16)
        h = fold_product(load_word(at, 8) ^ golden, load_word(at + 8, 8) ^ h);
    if (n >= 8) {
        h = fold_product(load_word(at, 8) ^ golden, h ^ ~golden);
        n -= 8;
        at += 8;
    }
    if (n > 0)
        h = fold_product(load_word(at, n) ^ golden, h ^ ~golden);
    return mr__hash_u64(h);
}
