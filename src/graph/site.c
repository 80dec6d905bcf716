/* SPDX-License-Identifier: Apache-2.0
 *
 * site.c -- "file:line" texts, one for each place, kept for ever.
 *
 * A table of chains that only grow: readers walk a chain without a lock, a
 * writer puts a record in front with compare-exchange and looks at what came
 * meanwhile before it tries again.  There are as many records as places in
 * the user's program that call us, so nothing is ever removed.
 * Called by: bindings.  Calls: base/.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "marram/scope.h"

enum {
    N_CHAINS = 8192,
    LINE_DIGITS = 12,
};

typedef struct mr_site_record {
    struct mr_site_record *next; /* fixed once published */
    uint64_t hash;
    char text[];
} mr_site_record;

static _Atomic(mr_site_record *) chains[N_CHAINS];

/* Is this text "file:line"?  `n` is the length of file. */
static bool
is_text_of(const char *text, const char *file, size_t n, const char *line)
{
    return strncmp(text, file, n) == 0 && text[n] == ':' &&
           strcmp(text + n + 1, line) == 0;
}

/* In the chain from `at` down to `end`, which is not looked at. */
static const char *
find(const mr_site_record *at, const mr_site_record *end, uint64_t hash,
     const char *file, size_t n, const char *line)
{
    for (; at != end; at = at->next)
        if (at->hash == hash && is_text_of(at->text, file, n, line))
            return at->text;
    return NULL;
}

static mr_site_record *
record_new(uint64_t hash, const char *file, size_t n, const char *line)
{
    size_t bytes = n + 1 + strlen(line) + 1;
    mr_site_record *r = mr__alloc(sizeof *r + bytes);

    if (r == NULL)
        return NULL;
    r->hash = hash;
    memcpy(r->text, file, n);
    snprintf(r->text + n, bytes - n, ":%s", line);
    return r;
}

const char *
mr_site_intern(const char *file, int line)
{
    char digits[LINE_DIGITS];
    mr_site_record *head, *seen = NULL, *mine = NULL;
    const char *found;
    uint64_t hash;
    size_t n;

    if (file == NULL)
        file = "?";
    n = strlen(file);
    snprintf(digits, sizeof digits, "%d", line);
    hash = mr__hash_bytes((uint64_t)(int64_t)line, file, n);
    /* acquire, both: pair with the release that published a record */
    head = atomic_load_explicit(&chains[hash % N_CHAINS], memory_order_acquire);
    do {
        found = find(head, seen, hash, file, n, digits);
        if (found) {
            mr__dealloc(mine);
            return found;
        }
        seen = head;
        if (mine == NULL)
            mine = record_new(hash, file, n, digits);
        if (mine == NULL)
            return NULL;
        mine->next = head;
    } while (!atomic_compare_exchange_weak_explicit(
        &chains[hash % N_CHAINS], &head, mine, memory_order_release,
        memory_order_acquire));
    mr__alloc_cached(1); /* kept on purpose */
    return mine->text;
}
