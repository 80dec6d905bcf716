/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.h -- short-lived memory that dies whole.
 *
 * Not thread safe: an arena belongs to one function call or one thread.
 */
#ifndef MR_BASE_ARENA_H
#define MR_BASE_ARENA_H

#include <stddef.h>

typedef struct mr_arena_chunk mr_arena_chunk;

/* Zero-initialise it: {0}.  Fields are private. */
typedef struct mr_arena {
    mr_arena_chunk *head;
    char *at, *end;
} mr_arena;

/* 16-byte aligned, not cleared; NULL with MR_E_MEMORY set on failure. */
void *mr__arena_alloc(mr_arena *a, size_t bytes);
void *mr__arena_zero(mr_arena *a, size_t bytes);
/* Bytes that it has from malloc. */
size_t mr__arena_bytes(const mr_arena *a);
/* Frees all chunks; the arena can be used again. */
void mr__arena_free(mr_arena *a);

#endif
