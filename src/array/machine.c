/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.c -- how much memory this process may use: the machine's, or what
 * its control group allows.
 *
 * Limits of all levels above the process count, in both versions of control
 * groups.
 * Called by: pool.c.  Calls: libc.
 */
#include "array/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* The number in a file; SIZE_MAX when there is none ("max", no file). */
static size_t
number_in(const char *path)
{
    FILE *f = fopen(path, "re");
    unsigned long long n;
    size_t out = SIZE_MAX;

    if (f == NULL)
        return SIZE_MAX;
    if (fscanf(f, "%llu", &n) == 1 && n > 0 && n < SIZE_MAX)
        out = (size_t)n;
    fclose(f);
    return out;
}

/* The smallest limit in `file` on the way from `group` up to the mount. */
static size_t
limit_above(const char *mount, const char *hierarchy, const char *group,
            const char *file)
{
    char path[PATH_BYTES], below[PATH_BYTES];
    size_t least = SIZE_MAX, n = strlen(group);

    if (n >= sizeof below)
        return SIZE_MAX;
    memcpy(below, group, n + 1);
    for (;;) {
        char *slash = strrchr(below, '/');
        int len = snprintf(path, sizeof path, "%s%s%s%s%s", mount, hierarchy,
                           below, below[0] && below[1] ? "/" : "", file);
        size_t here =
            len > 0 && (size_t)len < sizeof path ? number_in(path) : SIZE_MAX;

        if (here < least)
            least = here;
        if (slash == NULL || below[1] == '\0')
            return least;
        slash[slash == below ? 1 : 0] = '\0';
    }
}

/* Does the comma-separated list hold "memory"? */
static bool
names_memory(const char *list, size_t n)
{
    static const char word[] = "memory";
    size_t len = sizeof word - 1;

    for (size_t i = 0; i + len <= n; i++)
        if (memcmp(list + i, word, len) == 0 &&
            (i == 0 || list[i - 1] == ',') &&
            (i + len == n || list[i + len] == ','))
            return true;
    return false;
}

static size_t
limit_of_line(const char *line, const char *mount)
{
    const char *controllers = strchr(line, ':'), *group;

    if (controllers == NULL)
        return SIZE_MAX;
    controllers++;
    group = strchr(controllers, ':');
    if (group == NULL || group[1] != '/')
        return SIZE_MAX;
    if (group == controllers)
        return limit_above(mount, "", group + 1, "memory.max");
    if (names_memory(controllers, (size_t)(group - controllers)))
        return limit_above(mount, "/memory", group + 1,
                           "memory.limit_in_bytes");
    return SIZE_MAX;
}

size_t
mr__memory_of_machine(const char *membership, const char *mount)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t least =
        pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
    char line[PATH_BYTES];

    while (*membership) {
        size_t n = strcspn(membership, "\n");

        if (n < sizeof line) {
            size_t limit;

            memcpy(line, membership, n);
            line[n] = '\0';
            limit = limit_of_line(line, mount);
            if (limit < least)
                least = limit;
        }
        membership += n;
        if (*membership == '\n')
            membership++;
    }
    return least;
}
