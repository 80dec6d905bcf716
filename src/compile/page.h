/* SPDX-License-Identifier: Apache-2.0
 *
 * page.h -- a text that grows as it is written.
 *
 * Writing never fails by itself: a page that found no memory takes nothing any
 * more, and says so at the end.
 */
#ifndef MR_COMPILE_PAGE_H
#define MR_COMPILE_PAGE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mr_page {
    char *v; /* NULL while nothing was written; else ends with a 0 */
    size_t n, cap;
    bool failed;
} mr_page;

/* At most 1,023 bytes a call. */
void mr__page_put(mr_page *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Words of somebody else's, of any length: control characters and bytes that
 * are not UTF-8 become '?'. */
void mr__page_words(mr_page *t, const char *words, size_t n);
/* The same between the quotes of a string of the DOT language. */
void mr__page_quoted(mr_page *t, const char *words);
/* The text, which is the caller's; NULL without memory (the error is set). */
char *mr__page_take(mr_page *t);

#endif
