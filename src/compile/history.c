/* SPDX-License-Identifier: Apache-2.0
 *
 * history.c -- which argument makes a function compile again and again.
 *
 * Every trace leaves a text, a line for each argument: "name: value".  When
 * there have been too many, the line that had the most values is the one to
 * name, with some of them and what to do.
 *
 * Called by: function.c.
 */
#include "compile/history.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

enum { N_TEXTS = MR_MANY_TRACES + 1, SHOWN = 5 };

void
mr__history_free(mr_history *h)
{
    for (int i = 0; i < N_TEXTS; i++)
        /* relaxed: nobody else has it any more */
        mr__dealloc(atomic_load_explicit(&h->trace[i], memory_order_relaxed));
}

/* Line k of a text, without its end; false: there is none. */
static bool
line_at(const char *text, int k, const char **line, size_t *n)
{
    for (; text != NULL && *text != '\0'; k--) {
        const char *end = strchr(text, '\n');

        *n = end != NULL ? (size_t)(end - text) : strlen(text);
        *line = text;
        if (k == 0)
            return true;
        text = end != NULL ? end + 1 : text + *n;
    }
    return false;
}

/* Was the line of text i at k met in a text before it? */
static bool
is_repeated(const char *const *text, int i, int k)
{
    const char *line, *other;
    size_t n, m;

    if (!line_at(text[i], k, &line, &n))
        return true;
    for (int j = 0; j < i; j++)
        if (line_at(text[j], k, &other, &m) && n == m &&
            memcmp(line, other, n) == 0)
            return true;
    return false;
}

static int
n_values(const char *const *text, int k)
{
    int n = 0;

    for (int i = 0; i < N_TEXTS; i++)
        n += !is_repeated(text, i, k);
    return n;
}

/* "name" and "value, value, ..." of line k. */
static void
name_and_values(const char *const *text, int k, char *name, char *values,
                size_t cap)
{
    size_t at = 0;
    int shown = 0;

    name[0] = values[0] = '\0';
    for (int i = 0; i < N_TEXTS; i++) {
        const char *line, *colon;
        size_t n;
        int w;

        if (is_repeated(text, i, k) || !line_at(text[i], k, &line, &n))
            continue;
        colon = memchr(line, ':', n);
        if (colon == NULL || shown == SHOWN)
            break;
        snprintf(name, cap, "%.*s", (int)(colon - line), line);
        n -= (size_t)(colon + 2 - line);
        w = snprintf(values + at, cap - at, "%s%.*s", shown > 0 ? ", " : "",
                     (int)n, colon + 2);
        at = w > 0 && at + (size_t)w < cap ? at + (size_t)w : cap - 1;
        shown++;
    }
}

static void
say(const char *function, const char *const *text, const char *frozen)
{
    char name[256], values[512];
    int most = 0, which = -1, n;
    bool is_shape;

    for (int k = 0; n_values(text, k) > 0; k++)
        if ((n = n_values(text, k)) > most) {
            most = n;
            which = k;
        }
    if (most < 2) {
        mr__log(MR_LOG_WARN,
                "%s was traced %d times, each time for the same arguments: its "
                "programs are dropped, by clearing the cache or by its limits.",
                function, N_TEXTS);
        return;
    }
    name_and_values(text, which, name, values, sizeof name);
    /* "float32 (2, 3)" */
    is_shape =
        strstr(values, " (") != NULL && values[strlen(values) - 1] == ')';
    mr__log(MR_LOG_WARN,
            "%s was traced %d times, because %s changes: %s, ... %s%s%s%s",
            function, N_TEXTS, name, values,
            is_shape ? "Pad it to a few sizes, or compile with shapeless."
                     : "Pass it as an array if the function computes with it; "
                       "if it is meant to be static, give it fewer values.",
            frozen != NULL ? " (Shapeless does not help yet: " : "",
            frozen != NULL ? frozen : "", frozen != NULL ? ".)" : "");
}

void
mr__history_add(mr_history *h, const char *name, uint64_t n, char *lines,
                const char *frozen)
{
    const char *text[N_TEXTS];

    if (n >= N_TEXTS) {
        mr__dealloc(lines);
        return;
    }
    /* release: pairs with the acquire below */
    atomic_store_explicit(&h->trace[n], lines, memory_order_release);
    if (n + 1 < N_TEXTS)
        return;
    for (int i = 0; i < N_TEXTS; i++)
        /* acquire: pairs with the release above, of another thread */
        text[i] = atomic_load_explicit(&h->trace[i], memory_order_acquire);
    say(name, text, frozen);
}
