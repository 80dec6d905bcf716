/* SPDX-License-Identifier: Apache-2.0
 *
 * map.h -- a hash table from pointers to pointers, open addressing.
 *
 * Zero-initialise it.  Keys are compared by address; NULL is no key.  Keeps
 * no order.  Not thread safe.
 */
#ifndef MR_BASE_MAP_H
#define MR_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mr_map {
    struct mr_map_slot {
        const void *key;
        void *value;
    } * slot;
    size_t n, cap; /* cap is 0 or a power of two */
} mr_map;

/* The value, or NULL. */
void *mr__map_get(const mr_map *m, const void *key);
/* The place of the key's value, made (holding NULL) when absent; NULL with
 * MR_E_MEMORY set on failure.  Valid until the next insertion. */
void **mr__map_at(mr_map *m, const void *key);
bool mr__map_put(mr_map *m, const void *key, void *value);
void mr__map_free(mr_map *m);

/* A 64-bit mix of a 64-bit value (finaliser of SplitMix64) and of bytes
 * (seeded; stable within a process, not across versions). */
uint64_t mr__hash_u64(uint64_t x);
uint64_t mr__hash_bytes(uint64_t seed, const void *p, size_t n);

#endif
