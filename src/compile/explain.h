/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.h -- the programs of a function as text, and as a graph for
 * Graphviz: the whole, and the parts that both forms say.
 */
#ifndef MR_COMPILE_EXPLAIN_H
#define MR_COMPILE_EXPLAIN_H

#include <stdint.h>

#include "compile/cache.h"
#include "compile/page.h"
#include "compile/steps.h"
#include "marram/compile.h"

/* To be freed with mr_text_free; NULL without memory. */
char *mr__explain(uint64_t function, const char *name, mr_explain_form form);
/* References to the function's entries (0: to all), n of them, in a list of the
 * caller's; NULL without memory. */
mr_cache_entry **mr__explain_entries(uint64_t function, size_t *n);
/* One program as text. */
void mr__explain_entry(mr_page *t, const mr_cache_entry *e);
/* dot.c: one program as a cluster, whose nodes have names that begin with
 * `id`; it stands between these two. */
#define MR_DOT_BEGIN "digraph marram {\n"
#define MR_DOT_END   "}\n"
void mr__explain_dot(mr_page *t, const mr_cache_entry *e, const char *name,
                     const char *id);

/* ---- what both forms say -------------------------------------------------
 */

/* "(float32 (2, 3)) gives float32 ()" */
void mr__explain_signature(mr_page *t, const mr_program *p);
/* A line for each argument of the call that was traced. */
void mr__explain_lines(mr_page *t, const mr_cache_entry *e, const char *indent);
/* A line for each other way in which arguments came. */
void mr__explain_layouts(mr_page *t, const mr_program *p, const char *indent);
void mr__explain_shape(mr_page *t, mr_dtype dtype, int32_t ndim,
                       const int64_t *dim);
/* "workspace+128", "argument 2" */
void mr__explain_place(mr_page *t, const mr_program *p, const mr_slot *s);
mr_slot_kind mr__explain_kind(const mr_program *p, const mr_slot *s);
int mr__explain_index(const mr_program *p, const mr_slot *s);
/* "" or ", turned" and the like. */
const char *mr__explain_layout(const mr_slot *s);
int64_t mr__explain_bytes(const mr_slot *s);
/* "matmul, followed by add" */
void mr__explain_operators(mr_page *t, const mr_step *s);
/* "24 bytes in, 12 bytes out" */
void mr__explain_traffic(mr_page *t, const mr_step *s);
const char *mr__explain_tier(const mr_program *p, const mr_step *s);
/* How many of its outputs are somebody's. */
int mr__explain_outputs(const mr_step *s);
/* Which step makes what step n reads as its input i, and why the two are not
 * one; NULL (and -1): no step does. */
const char *mr__explain_apart(const mr_program *p, int n, int i, int *maker);

#endif
