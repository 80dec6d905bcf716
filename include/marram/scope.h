/* SPDX-License-Identifier: Apache-2.0
 *
 * scope.h -- scopes own temporaries.
 *
 *     mr_scope s = mr_scope_begin();
 *     mr_array *y = mr_exp(mr_add(a, b));   // both belong to s
 *     y = mr_scope_return(s, y);            // y to whoever owned results
 *     mr_scope_end(s);                      // before, the rest is released
 *
 * A scope belongs to the thread that began it; ending it elsewhere is an
 * error (MR_E_STATE).  The token closes everything opened above it.  Inside a
 * barrier (mr_scope_none) every result is the caller's own: bindings of other
 * languages run user code under one.
 */
#ifndef MARRAM_SCOPE_H
#define MARRAM_SCOPE_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

MR_API mr_scope mr_scope_begin(void);
MR_API mr_scope mr_scope_none(void);
MR_API mr_code mr_scope_end(mr_scope s);
/* Give x (owned by s, or a result made under it) to whoever would own it had
 * s not existed; returns x.  NULL passes through.  x may be given once. */
MR_API mr_array *mr_scope_return(mr_scope s, mr_array *x);
MR_API mr_tree *mr_scope_return_tree(mr_scope s, mr_tree *t);

/* A library that calls operators for its user names the user's line: nodes
 * made on this thread carry `site` (an immortal string) until it is restored
 * with what this returned.  NULL: each call's own. */
MR_API const char *mr_site_set(const char *site);
/* An immortal copy of "file:line": one for each text. */
MR_API const char *mr_site_intern(const char *file, int line);

/* The stream of the operators called on this thread; returns the old one.
 * {0} is the thread's default stream. */
MR_API mr_stream mr_stream_scope(mr_stream s);

MR_EXTERN_C_END

#endif
