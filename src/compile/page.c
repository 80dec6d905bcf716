/* SPDX-License-Identifier: Apache-2.0
 *
 * page.c -- a text that grows as it is written.
 *
 * Called by: explain.c, dot.c, report.c.
 */
#include "compile/page.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static bool
page_room(mr_page *t, size_t more)
{
    size_t cap = t->cap == 0 ? 1024 : t->cap;
    char *v;

    if (t->failed || t->n + more < t->cap)
        return !t->failed;
    while (cap <= t->n + more)
        cap *= 2;
    v = mr__alloc_again(t->v, cap);
    t->failed = v == NULL;
    if (v == NULL)
        return false;
    t->v = v;
    t->cap = cap;
    return true;
}

static void
page_add(mr_page *t, const char *s, size_t n)
{
    if (!page_room(t, n))
        return;
    memcpy(t->v + t->n, s, n);
    t->n += n;
    t->v[t->n] = '\0';
}

void
mr__page_put(mr_page *t, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n > (int)sizeof line - 1)
        n = (int)sizeof line - 1;
    if (n > 0)
        page_add(t, line, (size_t)n);
}

/* Bytes of the character of UTF-8 that begins at s, of n bytes; 0: none. */
static size_t
character(const char *s, size_t n)
{
    unsigned char c = (unsigned char)*s;
    size_t m = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;

    if (c > 0xF4 || m > n)
        return 0;
    for (size_t i = 1; i < m; i++)
        if (((unsigned char)s[i] & 0xC0) != 0x80)
            return 0;
    return m;
}

/* The character at s, of which it has m bytes (0: none that can be shown). */
static void
add_character(mr_page *t, const char *s, size_t m)
{
    if (m == 0 || (unsigned char)*s < 0x20 || *s == 0x7F)
        page_add(t, "?", 1);
    else
        page_add(t, s, m);
}

void
mr__page_words(mr_page *t, const char *words, size_t n)
{
    for (size_t i = 0, m; i<n; i += m> 0 ? m : 1) {
        m = character(words + i, n - i);
        add_character(t, words + i, m);
    }
}

void
mr__page_quoted(mr_page *t, const char *words)
{
    size_t n = strlen(words);

    for (size_t i = 0, m; i<n; i += m> 0 ? m : 1) {
        const char *s = words + i;

        m = character(s, n - i);
        if (*s == '"' || *s == '\\')
            page_add(t, "\\", 1);
        if (*s == '&') /* labels know the entities of HTML */
            page_add(t, "&amp;", 5);
        else if (*s == '\n')
            page_add(t, "\\l", 2); /* lines that begin at the left */
        else
            add_character(t, s, m);
    }
}

char *
mr__page_take(mr_page *t)
{
    char *v = t->failed ? NULL : t->v;

    if (t->failed)
        mr__dealloc(t->v);
    *t = (mr_page){.v = NULL};
    return v;
}
